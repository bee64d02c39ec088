//! Routes of a machine: what is wanted, what is there, and the difference (pure); and the netlink that brings one to the other.
