//! Nodes: machines for tests become nodes of clusters of a real platform, over one port, behind NAT.

mod host;
mod listing;
mod network;
mod sweep;

mod machines;
mod unfit;
