//! What is said of how long records stay.

use std::time::Duration;

/// Milliseconds and bytes on the wires and in metadata: no limit.
const UNLIMITED: i64 = -1;
/// A ledger is rolled after this part of the time that its records stay, so that they stay not much longer …
const ROLL_SHARE: u32 = 4;
/// … but not sooner than this.
const ROLL_AGE_MIN: Duration = Duration::from_secs(10);

/// One thing that a topic says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Setting<T> {
    /// Nothing: what the cluster says holds.
    #[default]
    Inherited,
    /// Without limit.
    Unlimited,
    /// So much.
    Limit(T),
}

/// What a topic says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetentionPolicy {
    /// How long records stay after their append; whole milliseconds.
    pub time: Setting<Duration>,
    /// Bytes that stay in each partition.
    pub bytes: Setting<u64>,
}

/// What holds in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Records go this long after their append; `None`: never.
    pub time: Option<Duration>,
    /// Of each partition so much stays; `None`: everything.
    pub bytes: Option<u64>,
}

impl<T: Copy> Setting<T> {
    /// What holds where `inherited` does otherwise.
    pub(crate) fn or(self, inherited: Option<T>) -> Option<T> {
        match self {
            Self::Inherited => inherited,
            Self::Unlimited => None,
            Self::Limit(limit) => Some(limit),
        }
    }
}

impl Setting<u64> {
    /// From a wire: unset, -1 or a number. `None`: less than -1, which is nothing.
    pub fn from_wire(value: Option<i64>) -> Option<Self> {
        match value {
            None => Some(Self::Inherited),
            Some(UNLIMITED) => Some(Self::Unlimited),
            Some(value) => u64::try_from(value).ok().map(Self::Limit),
        }
    }

    /// To a wire.
    pub fn to_wire(self) -> Option<i64> {
        match self {
            Self::Inherited => None,
            Self::Unlimited => Some(UNLIMITED),
            Self::Limit(limit) => Some(i64::try_from(limit).unwrap_or(i64::MAX)),
        }
    }
}

impl Setting<Duration> {
    /// From a wire, in milliseconds; as for bytes.
    pub fn from_wire_ms(value: Option<i64>) -> Option<Self> {
        Setting::<u64>::from_wire(value).map(|setting| match setting {
            Setting::Inherited => Self::Inherited,
            Setting::Unlimited => Self::Unlimited,
            Setting::Limit(ms) => Self::Limit(Duration::from_millis(ms)),
        })
    }

    /// To a wire, in milliseconds.
    pub fn to_wire_ms(self) -> Option<i64> {
        let ms = match self {
            Self::Inherited => Setting::Inherited,
            Self::Unlimited => Setting::Unlimited,
            Self::Limit(time) => {
                Setting::Limit(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
            }
        };
        ms.to_wire()
    }
}

impl RetentionPolicy {
    /// What holds in a cluster that says `cluster` of topics that say nothing.
    pub fn limits(&self, cluster: Limits) -> Limits {
        Limits {
            time: self.time.or(cluster.time),
            bytes: self.bytes.or(cluster.bytes),
        }
    }
}

impl From<Limits> for RetentionPolicy {
    /// As a topic would say it that leaves nothing to the cluster.
    fn from(limits: Limits) -> Self {
        Self {
            time: limits.time.map_or(Setting::Unlimited, Setting::Limit),
            bytes: limits.bytes.map_or(Setting::Unlimited, Setting::Limit),
        }
    }
}

impl Limits {
    /// True when nothing ever goes by itself.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.time.is_none() && self.bytes.is_none()
    }

    /// The age at which a log ledger is rolled, `usual` where records stay long.
    pub(crate) fn roll_age(&self, usual: Duration) -> Duration {
        let soon = self.time.map(|time| (time / ROLL_SHARE).max(ROLL_AGE_MIN));
        soon.map_or(usual, |soon| soon.min(usual))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_overrides_the_cluster_in_each_limit_alone() {
        let cluster = Limits {
            time: Some(Duration::from_secs(9)),
            bytes: Some(7),
        };
        let silent = RetentionPolicy::default();
        assert_eq!(silent.limits(cluster), cluster);
        let topic = RetentionPolicy {
            time: Setting::Unlimited,
            bytes: Setting::Limit(3),
        };
        let limits = topic.limits(cluster);
        assert_eq!((limits.time, limits.bytes), (None, Some(3)));
    }

    #[test]
    fn settings_come_back_from_the_wire_as_they_were() {
        for wire in [None, Some(-1), Some(0), Some(60_000), Some(i64::MAX)] {
            assert_eq!(Setting::<u64>::from_wire(wire).unwrap().to_wire(), wire);
            let time = Setting::<Duration>::from_wire_ms(wire).unwrap();
            assert_eq!(time.to_wire_ms(), wire);
        }
        assert_eq!(Setting::<u64>::from_wire(Some(-2)), None);
    }

    #[test]
    fn ledgers_of_short_lived_records_roll_sooner() {
        let usual = Duration::from_secs(4 * 3600);
        let age = |seconds: u64| {
            let limits = Limits {
                time: Some(Duration::from_secs(seconds)),
                bytes: None,
            };
            limits.roll_age(usual).as_secs()
        };
        assert_eq!((age(7 * 86_400), age(3600), age(1)), (14_400, 900, 10));
        assert_eq!(Limits::default().roll_age(usual), usual);
    }
}
