-- Times are microseconds since the Unix epoch. JSON is TEXT and never queried. Identifiers are UUIDs of version 7.

create table meta (
    key text not null primary key,
    value text not null
);

create table settings (
    key text not null primary key,
    value text not null
);

create table projects (
    id text not null primary key,
    name text not null unique,
    created_at bigint not null
);

insert into projects (id, name, created_at)
values ('00000000-0000-7000-8000-000000000001', 'default', cast(unixepoch('subsec') * 1000000 as integer));

create table clusters (
    id text not null primary key,
    project_id text not null references projects (id),
    name text not null,
    label text not null unique,
    labels text not null,
    generation bigint not null,
    resource_version bigint not null,
    host text,
    node_port bigint unique,
    local text,
    spec text not null,
    status text not null,
    created_at bigint not null,
    deleted_at bigint,
    unique (project_id, name)
);
create index clusters_by_project on clusters (project_id, id);
create index clusters_by_host on clusters (host, id);

create table events (
    id integer primary key autoincrement,
    at bigint not null,
    project_id text,
    cluster_id text,
    cluster text,
    severity text not null,
    reason text not null,
    message text not null,
    actor text
);
create index events_by_project on events (project_id, id);
create index events_by_cluster on events (cluster_id, id);
create index events_by_time on events (at);

create table jobs (
    id text not null primary key,
    kind text not null,
    project_id text,
    cluster_id text,
    host text,
    payload text not null,
    result text,
    state text not null,
    attempts bigint not null,
    max_attempts bigint not null,
    run_after bigint not null,
    lease_token text,
    lease_owner text,
    lease_host text,
    lease_expires_at bigint,
    last_error text,
    created_at bigint not null,
    finished_at bigint
);
create index jobs_due on jobs (run_after, id) where state = 'pending';
create index jobs_waiting on jobs (kind, cluster_id) where state = 'pending';
create index jobs_leased on jobs (lease_expires_at) where state = 'running';
create unique index jobs_one_running on jobs (cluster_id, kind) where state = 'running' and cluster_id is not null;
create index jobs_finished on jobs (state, finished_at) where finished_at is not null;
create index jobs_ended on jobs (state, id) where finished_at is not null;
create index jobs_open on jobs (id) where finished_at is null;
create index jobs_by_project on jobs (project_id, id);
create index jobs_by_cluster on jobs (cluster_id, id);

create table secrets (
    scope text not null,
    name text not null,
    cluster_id text references clusters (id),
    key_id text not null,
    sealed blob not null,
    primary key (scope, name)
);
create index secrets_by_cluster on secrets (cluster_id);

create table certificates (
    fingerprint text not null primary key,
    cluster_id text references clusters (id),
    authority text not null,
    purpose text not null,
    common_name text not null,
    not_before bigint not null,
    not_after bigint not null
);
create index certificates_by_cluster on certificates (cluster_id, not_after);
create index certificates_by_end on certificates (not_after);

create table kubeconfigs (
    id text not null primary key,
    cluster_id text not null references clusters (id),
    owner text not null,
    role text not null,
    namespace text,
    service_account text,
    credential_id text not null,
    created_at bigint not null,
    expires_at bigint not null,
    revoked_at bigint
);
create index kubeconfigs_by_cluster on kubeconfigs (cluster_id, id);
create index kubeconfigs_revoked on kubeconfigs (cluster_id, expires_at) where revoked_at is not null;
create index kubeconfigs_by_end on kubeconfigs (expires_at);

create table users (
    id text not null primary key,
    name text not null unique,
    password_hash text not null,
    platform_admin boolean not null,
    disabled boolean not null,
    created_at bigint not null
);

create table user_roles (
    user_id text not null references users (id),
    project_id text not null references projects (id),
    role text not null,
    primary key (user_id, project_id)
);
create index user_roles_by_project on user_roles (project_id);

create table sessions (
    id text not null primary key,
    user_id text not null references users (id),
    secret_hash blob not null unique,
    created_at bigint not null,
    expires_at bigint not null
);
create index sessions_by_user on sessions (user_id);
create index sessions_by_end on sessions (expires_at);

create table api_tokens (
    id text not null primary key,
    user_id text not null references users (id),
    name text not null,
    role text not null,
    project_id text references projects (id),
    secret_hash blob not null unique,
    created_at bigint not null,
    expires_at bigint not null,
    last_used_at bigint
);
create index api_tokens_by_user on api_tokens (user_id, id);
create index api_tokens_by_project on api_tokens (project_id);

create table idempotency (
    caller text not null,
    key text not null,
    request_hash blob not null,
    status bigint not null,
    body text not null,
    at bigint not null,
    primary key (caller, key)
);
create index idempotency_by_time on idempotency (at);
