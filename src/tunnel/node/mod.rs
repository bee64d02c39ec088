//! The node's side of the tunnel: keeps it up, opens streams to the API server, and dials for the platform what a node may.
