//! Backlog quotas as the gRPC wire has them.

use hulse_proto::error::Fault;
use hulse_proto::wire::v1;

use super::wire::invalid;
use crate::backlogs::{BacklogLimits, BacklogPolicy, QuotaAction, Standing};
use crate::retention::Setting;

/// Of an update: what the cluster says holds again.
const INHERITED: i64 = -2;

/// What a new topic is told.
///
/// # Errors
/// `INVALID_REQUEST`: a number below -1, or no action.
pub(super) fn of_new(wire: Option<&v1::BacklogQuota>) -> Result<BacklogPolicy, Fault> {
    let wire = wire.copied().unwrap_or_default();
    Ok(BacklogPolicy {
        bytes: bytes(wire.bytes)?,
        time: time(wire.time_ms)?,
        action: wire.action.map(action).transpose()?.flatten(),
    })
}

/// What an update makes of a topic's quota.
///
/// # Errors
/// `INVALID_REQUEST`: a number below -2, or no action.
pub(super) fn change(
    wire: &v1::UpdateTopicRequest,
) -> Result<impl Fn(BacklogPolicy) -> BacklogPolicy + use<>, Fault> {
    let known = |value: i64| (value != INHERITED).then_some(value);
    let new_bytes = wire
        .backlog_bytes
        .map(|size| bytes(known(size)))
        .transpose()?;
    let new_time = wire.backlog_ms.map(|ms| time(known(ms))).transpose()?;
    let new_action = wire.backlog_action.map(action).transpose()?;
    Ok(move |now: BacklogPolicy| BacklogPolicy {
        bytes: new_bytes.unwrap_or(now.bytes),
        time: new_time.unwrap_or(now.time),
        action: new_action.unwrap_or(now.action),
    })
}

/// Refuses an action that would never be taken.
///
/// # Errors
/// `INVALID_REQUEST`: neither the topic nor the cluster has a limit.
pub(super) fn has_limit(policy: BacklogPolicy, cluster: BacklogLimits) -> Result<(), Fault> {
    if policy.action.is_some() && policy.limits(cluster).is_off() {
        return Err(invalid(
            "a backlog policy does nothing without a limit: say also how much, or for how long, a subscription may keep records (--backlog-size, --backlog-age)",
        ));
    }
    Ok(())
}

/// As the wire has it.
pub(super) fn to_wire(policy: BacklogPolicy) -> v1::BacklogQuota {
    v1::BacklogQuota {
        bytes: policy.bytes.to_wire(),
        time_ms: policy.time.to_wire_ms(),
        action: policy.action.map(QuotaAction::number),
    }
}

/// The subscription of a partition that is nearest to its quota.
pub(super) fn kept(standing: Standing) -> v1::KeptBacklog {
    v1::KeptBacklog {
        subscription: standing.subscription.to_string(),
        bytes: standing.kept.bytes,
        age_ms: u64::try_from(standing.kept.age.as_millis()).unwrap_or(u64::MAX),
        used_percent: standing.used_percent,
        refusing: standing.refusing,
    }
}

fn time(wire: Option<i64>) -> Result<Setting<std::time::Duration>, Fault> {
    Setting::from_wire_ms(wire)
        .ok_or_else(|| invalid("a backlog by time is a number of milliseconds, or -1 for no limit"))
}

fn bytes(wire: Option<i64>) -> Result<Setting<u64>, Fault> {
    Setting::<u64>::from_wire(wire)
        .ok_or_else(|| invalid("a backlog by size is a number of bytes, or -1 for no limit"))
}

fn action(wire: i32) -> Result<Option<QuotaAction>, Fault> {
    QuotaAction::from_wire(wire)
        .ok_or_else(|| invalid("what happens to too large a backlog is hold, reject or evict"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn action_needs_a_limit_of_the_topic_or_of_the_cluster() {
        let evict = BacklogPolicy {
            action: Some(QuotaAction::Evict),
            ..BacklogPolicy::default()
        };
        let limited = BacklogLimits {
            bytes: Some(7),
            ..BacklogLimits::default()
        };
        let off = BacklogLimits::default();
        assert!(has_limit(evict, off).is_err());
        assert_eq!(has_limit(evict, limited), Ok(()));
        assert_eq!(has_limit(BacklogPolicy::default(), off), Ok(()));
        let own = BacklogPolicy {
            time: Setting::Limit(std::time::Duration::from_secs(1)),
            ..evict
        };
        assert_eq!(has_limit(own, off), Ok(()));
    }

    #[test]
    fn update_changes_what_it_names_and_nothing_else() {
        let now = BacklogPolicy {
            bytes: Setting::Limit(7),
            time: Setting::Unlimited,
            action: Some(QuotaAction::Evict),
        };
        let updated = |backlog_bytes, backlog_action| {
            let wire = v1::UpdateTopicRequest {
                backlog_bytes,
                backlog_action,
                ..Default::default()
            };
            change(&wire).map(|change| change(now)).ok()
        };
        assert_eq!(updated(None, None), Some(now));
        let inherited = BacklogPolicy {
            bytes: Setting::Inherited,
            action: None,
            ..now
        };
        assert_eq!(updated(Some(-2), Some(0)), Some(inherited));
        assert_eq!(updated(Some(-3), None), None);
        assert_eq!(updated(None, Some(9)), None);
        assert_eq!(of_new(Some(&to_wire(now))).ok(), Some(now));
    }
}
