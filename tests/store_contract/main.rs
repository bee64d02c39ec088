//! What every database and the queue over it must do. A contract is a function of a [`Bench`]; a database passes when it
//! passes all of them, and a second one is added by naming how it is opened.

#![allow(missing_docs, clippy::unwrap_used)]

mod access;
mod bench;
mod clusters;
mod killed;
mod ledgers;
mod nodes;
mod queue;
mod queue_faults;
mod transactions;

use bench::Bench;

macro_rules! contracts {
    ($name:ident: $open:expr; $($module:ident { $($contract:ident)+ })+) => {
        mod $name {
            use super::*;
            $(mod $module {
                use super::*;
                $(#[tokio::test(start_paused = true)]
                async fn $contract() {
                    crate::$module::$contract(Bench::new($open)).await;
                })+
            })+

            /// In real time and on several threads.
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn two_workers_do_each_of_200_jobs_once() {
                crate::queue::two_workers_do_each_of_200_jobs_once(Bench::new($open)).await;
            }
        }
    };
}

contracts! {
    sqlite: kubebyon::store::sqlite::temporary().unwrap();
    transactions {
        what_is_dropped_leaves_nothing
        watchers_hear_of_commits_alone
        views_are_consistent
        writers_take_turns
    }
    clusters {
        are_found_by_id_and_by_name
        names_are_unique_in_a_project
        text_of_every_script_comes_back_as_it_went_in
        an_update_over_an_old_version_is_refused
        only_a_changed_spec_is_a_new_generation
        an_unchanged_status_is_not_written
        are_marked_for_deletion_once
        ports_are_the_lowest_free_ones
        allotments_are_made_once
        pages_follow_each_other
        a_page_of_selected_clusters_is_full_while_more_follow
        lists_show_the_given_projects_alone
        tokens_of_other_lists_are_refused
        are_removed_with_all_but_their_events_and_running_jobs
    }
    access {
        the_default_project_is_there
        projects_page_by_name
        users_have_roles
        sessions_end
        what_bars_a_user_ends_sessions
        tokens_are_found_by_their_hash
        removing_a_user_removes_what_is_theirs
    }
    ledgers {
        of_two_who_store_a_secret_both_get_the_first
        certificates_are_kept_and_pruned
        revoked_credentials_are_listed_until_their_end
        settings_and_facts
        answers_are_kept_once
        events_are_one_sequence
        what_is_old_is_pruned_in_batches
    }
    nodes {
        tokens_are_used_until_they_end
        of_many_who_use_a_token_at_once_as_many_may_as_it_says
        a_name_an_address_and_a_key_are_one_nodes
        an_address_that_another_has_is_replaced_by_an_assigned_one
        what_is_known_of_a_node_is_written_when_it_changed
        certificates_are_good_until_they_end_or_are_revoked
        a_membership_that_ended_gets_no_certificate
        the_newest_keys_of_a_node_are_kept
        nodes_of_a_deleted_cluster_are_remembered
        a_removal_is_asked_for_with_its_job
    }
    queue {
        a_job_is_done_and_its_result_kept
        a_job_that_was_not_committed_is_not_done
        failures_are_retried_until_one_goes_well
        a_job_is_dead_after_its_last_attempt_and_can_be_retried
        a_fatal_failure_is_not_retried
        a_panic_is_a_failure
        waiting_jobs_coalesce
        one_job_of_a_kind_runs_for_a_cluster
        jobs_of_other_hosts_and_kinds_are_left_alone
        waiting_ends_at_its_deadline
        jobs_are_listed
        old_rows_are_removed_by_the_prune_job
    }
    queue_faults {
        the_job_of_a_killed_worker_is_taken_when_its_lease_ran_out
        a_job_that_ends_its_workers_dies
        an_earlier_process_of_the_host_is_reclaimed_at_once
        a_worker_that_lost_its_lease_writes_nothing
        a_lease_that_is_renewed_is_kept
        a_clock_that_jumps_ahead_does_not_double_a_job
        a_clock_that_jumps_back_does_not_stop_the_queue
        draining_gives_back_what_did_not_end
        draining_lets_jobs_end
    }
}
