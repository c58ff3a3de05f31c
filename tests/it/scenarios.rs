//! Every story of `tests/scenarios`, played on the in-process front: one test for each file.
//!
//! `clustersim scenario FILE` plays one by hand, `--trace` shows its whole timeline, `--against binary` plays it with the shipped
//! binary.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use testkit::scenario::Scenario;
use testkit::scenario::run::{Options, on_model};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

/// Plays one file and fails with its verdict.
fn play(name: &str) {
    let file = folder().join(format!("{name}.toml"));
    let story = match Scenario::load(&file) {
        Ok(story) => story,
        Err(problem) => panic!("{problem}"),
    };
    let verdict = on_model(&story, &Options::default());
    assert!(
        verdict.passed,
        "\n{}\nreplay: clustersim scenario --trace tests/scenarios/{name}.toml",
        verdict.text()
    );
}

macro_rules! stories {
    ($($name:ident),+ $(,)?) => {
        const STORIES: &[&str] = &[$(stringify!($name)),+];
        $(#[test]
        fn $name() {
            play(stringify!($name));
        })+
    };
}

stories![
    another_machine,
    answer_denied,
    answer_gone,
    answer_kubevirt_failed,
    answer_lost,
    answer_namespace_terminating,
    answer_not_migratable,
    answer_throttled,
    answer_unauthorized,
    answer_vmi_gone,
    answer_webhook_timeout,
    api_away_and_back,
    api_away_policy_hold,
    api_down_20s,
    api_down_at_signal,
    api_gone_at_signal,
    api_gone_no_vm,
    api_hangs,
    api_slow,
    cancel_after_guests_stopped,
    cancel_foreign_cordon,
    cancel_maintenance_by_hand,
    cancel_nothing,
    cancel_scheduled,
    cluster_slots_taken,
    consent_always,
    consent_given,
    consent_needed,
    consent_needed_base,
    deadline_abort,
    deadline_abort_host_goes,
    deadline_hold,
    deadline_hold_ended,
    deadline_names_what_is_left,
    deadline_base,
    deadline_hold_host_goes,
    deadline_proceed,
    doctor_base,
    doctor_well,
    double_signal,
    extend,
    extend_past_the_limit,
    fallback,
    fallback_base,
    fallback_never,
    fallback_no_handler,
    evict_no_handler,
    evict_no_handler_base,
    evict_no_handler_deadline,
    plan_no_handler,
    node_deleted,
    fallback_stop_order,
    fallback_time_too_short,
    fate_halted,
    fate_owners,
    fate_running_true,
    fate_strategies,
    fate_unknown_owner,
    fifty_mixed,
    fifty_mixed_all_at_once,
    hooks,
    hooks_fail,
    hooks_fail_abort,
    hooks_fail_host_goes,
    hooks_no_time,
    hooks_too_long,
    hundred_vms,
    kill_again_and_again,
    kill_cancelling,
    kill_confirming,
    kill_deadline,
    kill_drained,
    kill_evacuating,
    kill_preparing,
    kubevirt_1_4,
    kubevirt_1_4_base,
    kubevirt_1_5,
    kubevirt_1_6,
    kubevirt_1_7,
    kubevirt_1_8,
    kubevirt_1_9,
    kubevirt_1_9_base,
    limit_shrinks_while_idle,
    logind_away_for_long,
    logind_restarted_idle,
    malformed_node,
    malformed_objects,
    malformed_pod,
    maintenance_cancel,
    maintenance_cancel_not_an_operators,
    maintenance_drain,
    maintenance_joins,
    maintenance_rack,
    maintenance_rack_untold,
    maintenance_restore,
    maintenance_ups,
    migration_fails_once,
    mixed_base,
    migration_fails_once_base,
    net3_daemon_dead,
    net3_in_mid_delay,
    net3_stop_job,
    no_vm,
    one_vm,
    pdb_never,
    pdb_never_base,
    pdb_no_room,
    pdb_unhealthy,
    pdb_waits,
    pdb_young,
    plain,
    plain_base,
    plan_all_move,
    plan_api_down,
    plan_mixed,
    pods_base,
    pods_beside_kubectl,
    pods_budget,
    pods_budget_never,
    pods_by_trigger,
    pods_empty_dir,
    pods_everything,
    pods_only_vms,
    pods_order,
    pods_same_name,
    pods_scheduled,
    pods_slow_ones_stop_no_guest,
    pods_terminating_namespace,
    pods_unmanaged,
    pods_unmanaged_reboot,
    policy_bad_annotation,
    policy_deadline,
    policy_deadline_proceed,
    policy_default,
    policy_default_leave,
    policy_default_restart,
    policy_leave,
    policy_leave_host_goes,
    policy_needs_consent,
    policy_on_vm_alone,
    policy_on_vm_alone_base,
    policy_restart,
    policy_restart_without_right,
    policy_rule_deadline,
    policy_rules,
    policy_shutdown,
    policy_shutdown_base,
    priority_queue,
    reboot_three_times,
    release,
    release_proceed,
    release_twice,
    restore_after_unfinished_drain,
    request_annotation,
    restore_after_reboot,
    restore_after_soft_reboot,
    restore_after_soft_reboot_254,
    restore_api_down_at_boot,
    restore_base,
    restore_by_hand,
    restore_damaged_state_file,
    restore_foreign_cordon,
    restore_interrupted_by_shutdown,
    restore_keeps_cordon,
    restore_killed_again_and_again,
    restore_not_what_was_uncordoned_by_others,
    restore_not_without_shutdown,
    restore_waits_for_virt_handler,
    rights_without_abort,
    rights_without_budgets,
    rights_without_cancel,
    rights_without_kubevirts,
    rights_without_migrations,
    rights_without_vmis,
    start_after_restore,
    start_after_restore_by_hand,
    start_after_restore_without_right,
    stranger_signal,
    t01_same_name_new_pod,
    t02_throttled,
    t04_two_budgets,
    t07_accepted_is_not_gone,
    t08_deadline_at_start,
    t10_cancel,
    t10_cancel_aborts_migrations,
    t10_cancel_on_1_6,
    t10_cancel_with_drain_taint,
    t11_budget_over_migrating,
    t12_stuck_migrations,
    t13_hotplug_disks,
    t13_hotplug_disks_base,
    t15_sidecar_keeps_pod,
    t15_source_pod_lingers,
    t15_source_pod_lingers_base,
    t17_virt_api_down,
    t17_virt_api_down_base,
    t17_virt_api_down_on_1_4,
    t18_inbound_migration,
    t18_inbound_migration_base,
    t20_only_this_node_fits,
    t21_only_cordoned,
    t24_others_let_go_first,
    t27_restart_does_not_drain,
    t27_restart_in_mid_drain,
    t29_schedule_reached,
    t29a_called_off_while_away,
    t29a_guest_runs_until_its_time,
    t29a_schedule_cancelled,
    t29a_schedule_cancelled_252,
    t29a_schedule_ignored,
    t29a_schedule_only_cordons,
    t29a_schedule_restart,
    t29b_called_off,
    t29b_job_fails,
    t29c_cancel_before_logind,
    t29c_cancel_while_logind_waits,
    t30_kubelet_holds_too,
    t31_budget_told_before,
    t32_deadline_by_default,
    t33_cancel_uncordons_at_once,
    t35_foreign_cordon,
    t36_foreign_uncordon,
    t36_foreign_uncordon_aborts,
    t40_failed_half_way,
    t42_api_gone_for_good,
    t44_logind_restarted,
    t44_scheduled_comes_twice,
    t48_limit_read_late,
    t52_false_comes_first,
    t53_second_shutdown,
    t56_reboot_typed_again,
    t57_block_lock,
    t59_cordon_conflicts,
    t61_cordon_refused,
    t64_ignores_acpi,
    t66_foreign_taint,
    t70_another_drainer,
    t76_fenced_in_the_hold,
    t77_may_not_write,
    ten_vms,
    ten_vms_all_at_once,
    ten_vms_base,
    ten_vms_quick_start,
    trigger_then_reboot,
    unschedulable_target,
    ups_what_fits,
    volumes_detach,
    volumes_stay,
    volumes_without_right,
    watch_expired,
    whole_rack,
];

/// A file that nobody plays proves nothing.
#[test]
fn every_file_is_played() {
    let files: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    let played: BTreeSet<String> = STORIES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(files, played);
}

/// The same file, seed and front give the same verdict and the same timeline.
#[test]
fn a_story_is_the_same_on_every_run() {
    let story = Scenario::load(&folder().join("kill_evacuating.toml")).unwrap();
    let options = Options {
        trace: true,
        ..Options::default()
    };
    let (first, second) = (on_model(&story, &options), on_model(&story, &options));
    assert!(first.trace.len() > 100);
    assert_eq!(first, second);
}
