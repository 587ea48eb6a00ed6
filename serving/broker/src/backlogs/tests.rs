//! Quotas judged and kept, without a wire.

use std::time::Duration;

use hulse_proto::error::Reason;
use hulse_proto::id::{PartitionId, TopicId};
use uuid::Uuid;

use super::{BacklogLimits, BacklogPolicy, Kept, QuotaAction, Refusal};
use crate::retention::Setting;

const LIMITS: BacklogLimits = BacklogLimits {
    bytes: Some(1_000),
    time: Some(Duration::from_secs(60)),
    action: QuotaAction::Reject,
};

#[test]
fn topic_overrides_the_cluster_in_each_setting_alone() {
    assert_eq!(BacklogPolicy::default().limits(LIMITS), LIMITS);
    let topic = BacklogPolicy {
        bytes: Setting::Unlimited,
        time: Setting::Inherited,
        action: Some(QuotaAction::Evict),
    };
    let limits = topic.limits(LIMITS);
    assert_eq!((limits.bytes, limits.time), (None, LIMITS.time));
    assert_eq!(limits.action, QuotaAction::Evict);
    assert_eq!(BacklogPolicy::from(limits).limits(LIMITS), limits);
}

#[test]
fn actions_come_back_from_the_wire_and_nothing_else_does() {
    for action in [QuotaAction::Hold, QuotaAction::Reject, QuotaAction::Evict] {
        assert_eq!(QuotaAction::from_wire(action.number()), Some(Some(action)));
    }
    assert_eq!(QuotaAction::from_wire(0), Some(None));
    assert_eq!(QuotaAction::from_wire(4), None);
}

#[test]
fn limit_itself_may_be_kept_and_one_byte_more_may_not() {
    let kept = |bytes, seconds| Kept {
        bytes,
        age: Duration::from_secs(seconds),
    };
    assert!(!kept(1_000, 60).exceeds(&LIMITS));
    assert!(kept(1_001, 0).exceeds(&LIMITS));
    assert!(kept(0, 61).exceeds(&LIMITS));
    assert_eq!(kept(250, 30).used_percent(&LIMITS), Some(50));
    assert_eq!(Kept::default().used_percent(&LIMITS), Some(0));
    assert_eq!(kept(1, 1).used_percent(&BacklogLimits::default()), None);
    assert!(!kept(u64::MAX, u64::MAX).exceeds(&BacklogLimits::default()));
    let nothing = BacklogLimits {
        bytes: Some(0),
        ..BacklogLimits::default()
    };
    assert!(kept(1, 0).exceeds(&nothing) && !kept(0, 0).exceeds(&nothing));
}

#[test]
fn refusal_names_the_subscription_what_it_keeps_and_what_it_may() {
    let refusal = Refusal::default();
    assert_eq!(refusal.get(), None);
    let kept = Kept {
        bytes: 1_500,
        age: Duration::from_secs(61),
    };
    let partition = PartitionId {
        topic: TopicId(Uuid::nil()),
        index: 3,
    };
    refusal.set(Some(kept.refusal(
        "public/default/slow",
        partition,
        &LIMITS,
    )));
    let fault = refusal.get().unwrap();
    assert_eq!(fault.reason, Reason::BacklogExceeded);
    for part in [
        "public/default/slow",
        "1.46KiB",
        "1KB",
        "61 s",
        "60 s",
        "partition 3",
    ] {
        assert!(fault.message.contains(part), "{part} is not in: {fault}");
    }
    assert_eq!(fault.details["backlog_bytes"], "1500");
    assert!(fault.retry_after.is_some());
    refusal.set(None);
    assert_eq!(refusal.get(), None);
}
