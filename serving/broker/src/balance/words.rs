//! Why moves are made or are not, for people.

use super::judge::{Look, Verdict};
use super::model::{BalanceLimits, GAP_MIN};

/// One sentence.
pub(super) fn words(look: &Look, limits: &BalanceLimits) -> String {
    let planned = &look.planned;
    let percent = planned.before.percent;
    match look.verdict {
        Verdict::TooFew => {
            "fewer than two brokers are ready: there is nothing to even out".to_owned()
        }
        Verdict::Even if percent > limits.spread_percent => format!(
            "even: the furthest broker is {percent} % from the mean, but loads differ by less than {} a second",
            hulse_proto::size::about(GAP_MIN)
        ),
        Verdict::Even => format!("even: the furthest broker is {percent} % from the mean"),
        Verdict::Wait { seen, of } => format!(
            "uneven: the furthest broker is {percent} % from the mean, in {seen} of {of} looks; partitions move when it stays so"
        ),
        Verdict::NothingHelps => {
            let mut why = Vec::new();
            if planned.pinned > 0 {
                why.push(format!("{} partitions are pinned", planned.pinned));
            }
            if planned.resting > 0 {
                why.push(format!("{} were moved lately", planned.resting));
            }
            why.push("what may move is too big, or too little, to help".to_owned());
            format!(
                "uneven: the furthest broker is {percent} % from the mean, and no move helps: {}",
                why.join(", ")
            )
        }
        Verdict::Act => format!(
            "uneven: the furthest broker is {percent} % from the mean, and {} % after {} moves",
            planned.after.percent,
            planned.moves.len()
        ),
    }
}
