//! `metrics.*`, `session.*` and `cors.*`: the site that people and programs see. Imports `config::value`.

use crate::config::section::section;
use crate::config::value::Listener;
use crate::domain::Invalid;

section! {
    /// Metrics on ports of their own.
    pub struct Metrics {
        /// Where the api role serves `/metrics`, such as `:9091`; off by default.
        api_listen: Listener = Listener::Unset,
        /// Where the worker role serves `/metrics`, such as `:9090`; off by default.
        worker_listen: Listener = Listener::Unset,
    }
}

section! {
    /// Sessions of people.
    pub struct Session {
        /// Whether browsers send the session's cookie over TLS alone.
        cookie_secure: bool = true,
    }
}

section! {
    /// Browsers of other sites.
    pub struct Cors {
        /// Origins that may call the API with a user's session, such as `https://console.example.com`.
        allowed_origins: Vec<String> = Vec::new(),
    }
}

impl Cors {
    /// Each is an origin: scheme, host, port, and nothing behind.
    pub fn validate(&self, problems: &mut Vec<Invalid>) {
        for (index, origin) in self.allowed_origins.iter().enumerate() {
            let rest = origin.split_once("://").map_or("", |(_, rest)| rest);
            if !super::is_http_url(origin) || rest.contains('/') {
                problems.push(Invalid::new(
                    format!("cors.allowed_origins[{index}]"),
                    format!("{origin:?} is no origin; it looks like https://console.example.com, without a path, and * is not allowed"),
                ));
            }
        }
    }
}
