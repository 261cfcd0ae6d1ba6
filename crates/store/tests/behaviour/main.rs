//! What every store must do, written against the trait and run for each kind of store. Behaviours
//! that concern files, restarts and schema changes on disk are SQLite's own: `files`, `evolution`.

// All of it is test code, the parts outside `#[test]` functions too.
#![allow(clippy::unwrap_used)]

mod cleanup;
mod commits;
mod deliveries;
mod erasures;
mod evolution;
mod fairness;
mod files;
mod follow;
mod keys;
mod lists;
mod nodes;
mod postgres;
mod references;
mod remembered;
mod searches;
mod sessions;
mod support;
mod versions;
mod writing;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use store::sqlite::{Options, Role, SqliteStore};

/// A fresh SQLite store in a directory that goes away with it.
fn sqlite() -> support::Bed {
    let directory = tempfile::tempdir().unwrap();
    let schema = Arc::new(support::schema());
    let time = Arc::new(AtomicI64::new(support::START));
    let hand = time.clone();
    let clock: store::sqlite::Clock =
        Arc::new(move || model::Timestamp(hand.load(Ordering::Relaxed)));
    let options =
        Options { role: Role::Server, steady: Some(clock.clone()), clock, ..Options::default() };
    let store = SqliteStore::open_with(&directory.path().join("data.db"), schema, options).unwrap();
    support::Bed { store, time, _keep: Box::new(directory) }
}

/// A fresh PostgreSQL store in a schema of its own, where the tests were given a server.
fn postgres() -> Option<support::Bed> {
    postgres::fresh()
}

macro_rules! suite {
    ($($module:ident { $($name:ident)* })*) => {
        mod sqlite {
            $($(
                #[tokio::test]
                async fn $name() {
                    super::$module::$name(super::sqlite()).await;
                }
            )*)*
        }
        mod on_postgres {
            $($(
                #[tokio::test]
                async fn $name() {
                    if let Some(bed) = super::postgres() {
                        super::$module::$name(bed).await;
                    }
                }
            )*)*
        }
    };
}

suite! {
    commits {
        a_created_record_is_there_with_its_event
        every_change_has_exactly_one_event_and_every_event_its_change
        a_change_of_nothing_leaves_no_trace
        a_replaced_record_loses_what_was_not_sent
        versions_guard_writes
        a_deleted_record_stays_deleted
        scopes_never_meet
        children_are_found_only_below_their_parent
        a_delete_takes_everything_below_along
        a_delete_of_too_much_is_refused_whole
        unique_values_are_refused_and_all_of_them_named
        references_must_exist
        actions_move_the_state_and_refusals_leave_their_trace
        timers_come_due_and_are_voided
        feeds_number_their_records_by_the_log
        time_never_runs_backwards
        one_bad_write_does_not_spoil_its_batch
        write_only_fields_are_kept_and_not_served
        keys_are_found_by_digest_and_bump_the_generation
        collection_sequences_grow_with_their_own_changes
        children_windows_and_ids
    }
    keys {
        a_repeated_request_is_replayed_byte_for_byte
        another_request_with_the_same_key_is_refused
        refusals_after_execution_are_replayed
        failed_validation_is_not_remembered
        an_update_that_changed_nothing_is_replayed_too
        keys_expire_after_a_day
        concurrent_duplicates_take_effect_once
        the_last_uses_of_keys_are_kept_for_a_bounded_number_of_keys
    }
    lists {
        filters_select
        sorts_order_with_nulls_smallest
        cursor_walks_equal_the_whole_list
        offset_pages_count
        walks_survive_concurrent_moves
        random_walks_match_a_model
        child_lists_belong_to_their_parent
        a_snapshot_too_far_back_is_refused
    }
    searches {
        search_reads_its_own_writes
        case_does_not_count_in_a_search
        hostile_words_are_only_words
        search_respects_scope_filters_and_pages
        search_sorts_by_rank_and_fields
    }
    deliveries {
        outcomes_are_shown_and_positions_never_go_back
        a_second_outcome_of_a_delivery_replaces_the_first
        what_has_succeeded_is_not_taken_back
        an_attempt_whose_delivery_is_gone_is_not_kept
        a_pause_is_kept_and_moves_no_position
        the_head_stands_for_every_endpoint_without_a_position
        reads_of_the_log_and_of_retries_are_bounded_by_bytes
        retries_come_due_and_those_asked_for_come_first
        events_tell_what_is_still_to_be_delivered
        events_of_keys_stay_inside
        a_published_event_is_its_own_change
        an_erased_resource_leaves_ids_and_outcomes
        an_answer_with_nul_is_erased_like_any_other
        old_events_go_and_the_newest_stays
        events_still_to_be_delivered_stay_until_the_backlog_is_over
        a_sweep_notes_what_an_endpoint_missed_once
        an_event_goes_with_any_number_of_deliveries
        pending_deliveries_of_a_deleted_endpoint_hold_no_event_back
        an_event_that_is_to_be_delivered_again_by_hand_stays
        endpoints_are_counted
        unfinished_replays_are_counted
        a_start_reads_no_replay_that_has_ended
    }
    fairness {
        long_reads_of_one_account_delay_only_itself
        an_account_with_too_many_long_reads_is_refused_alone
        pages_of_large_records_end_by_their_bytes_and_delay_nobody
        timers_of_one_account_do_not_hold_up_another
        tombstones_go_with_the_events_that_tell_of_them
    }
    follow {
        followers_see_every_event_once_in_order
        a_follower_of_one_scope_sees_no_other
        a_waiting_follower_wakes_on_commit
    }
}
