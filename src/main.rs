//! The one binary. Everything is in the library; see its map.

fn main() -> std::process::ExitCode {
    kubebyon::cli::main()
}
