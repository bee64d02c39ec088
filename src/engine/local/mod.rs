//! The local engine: real upstream programs as processes of this host.
