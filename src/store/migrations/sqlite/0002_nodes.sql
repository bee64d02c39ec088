-- Join tokens, nodes, the client certificates of their kubelets, and the ends of memberships.

create table join_tokens (
    id text not null primary key,
    cluster_id text not null references clusters (id),
    owner text not null,
    secret_hash blob not null,
    created_at bigint not null,
    expires_at bigint not null,
    uses bigint not null,
    used bigint not null,
    revoked_at bigint
);
create index join_tokens_by_cluster on join_tokens (cluster_id, id);
create index join_tokens_by_end on join_tokens (expires_at);
create index join_tokens_revoked on join_tokens (revoked_at) where revoked_at is not null;

-- join_token_id refers to no row: a token is forgotten before the nodes that joined with it.
create table nodes (
    id text not null primary key,
    cluster_id text not null references clusters (id),
    name text not null,
    address text not null,
    address_assigned boolean not null,
    machine text not null,
    labels text not null,
    taints text not null,
    status text not null,
    join_token_id text,
    joined_at bigint not null,
    removed_at bigint,
    public_key blob not null,
    unique (cluster_id, name),
    unique (cluster_id, address),
    unique (cluster_id, public_key)
);

-- Certificates outlive their node's row: what was revoked is to be refused until it ends by itself.
create table node_certificates (
    fingerprint text not null primary key,
    node_id text not null,
    cluster_id text not null references clusters (id),
    not_after bigint not null,
    revoked_at bigint
);
create index node_certificates_by_cluster on node_certificates (cluster_id, not_after);
create index node_certificates_by_node on node_certificates (node_id);
create index node_certificates_by_end on node_certificates (not_after);

-- A kubelet makes a new key with each renewal, and whichever of its keys a machine holds proves that it was this node: they are kept
-- as long as the node or its tombstone.
create table node_keys (
    node_id text not null,
    public_key blob not null,
    at bigint not null,
    primary key (node_id, public_key)
);
create index node_keys_by_key on node_keys (public_key);

-- Tombstones outlive the cluster, too, and carry the names that a message needs.
create table node_tombstones (
    node_id text not null primary key,
    cluster_id text not null,
    cluster text not null,
    name text not null,
    fate text not null,
    public_key blob not null,
    at bigint not null
);
create index node_tombstones_by_cluster on node_tombstones (cluster_id, node_id);
create index node_tombstones_by_time on node_tombstones (at);
