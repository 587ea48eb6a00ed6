//! The stored batch that is being handed out.

use hulse_proto::error::ErrorKind;

use super::core::{Acknowledgement, Handed, Place, Unit};
use super::link::Shared;
use crate::error::Error;
use crate::reader::ReadRecord;

/// What is open now.
#[derive(Default)]
pub(super) struct Opened {
    unit: Option<Unit>,
    /// What is left of it.
    records: std::vec::IntoIter<ReadRecord>,
    /// It is acknowledged before it is handed out; its number among such units.
    ahead: Option<(u64, Acknowledgement)>,
    aheads: u64,
}

/// What comes out.
pub(super) enum Yield {
    Record {
        record: ReadRecord,
        place: Place,
        redelivery: bool,
    },
    /// First this must be known.
    Ahead(u64, Acknowledgement),
    /// The application has too many records without an acknowledgement.
    Full,
    /// The next unit, please.
    Nothing,
}

impl Opened {
    /// Begins a unit.
    ///
    /// # Errors
    /// Corrupt: it cannot be decoded. Its records are not handed out, and stay unacknowledged.
    pub(super) fn open(&mut self, unit: Unit, ahead: bool, shared: &Shared) -> Result<(), Error> {
        let records = match unit.batch.records() {
            Ok(records) => records,
            Err(error) => {
                shared.with(|core| core.finish(&unit));
                let header = &unit.batch.header;
                let words = format!(
                    "the batch of offsets {} to {} of partition {} cannot be decoded: {error}; it is passed over and stays unacknowledged",
                    header.base_offset.0,
                    header.end_offset().0 - 1,
                    unit.partition(),
                );
                return Err(
                    Error::local(ErrorKind::Corrupt, words).with_source(std::sync::Arc::new(error))
                );
            }
        };
        self.records = records.into_iter();
        if ahead {
            self.aheads += 1;
            self.ahead = Some((self.aheads, shared.with(|core| core.ack_ahead(&unit))));
        }
        self.unit = Some(unit);
        Ok(())
    }

    /// The next record of what is open.
    pub(super) fn next(&mut self, ahead: bool, shared: &Shared) -> Yield {
        if let Some((number, acknowledgement)) = &self.ahead {
            return Yield::Ahead(*number, acknowledgement.clone());
        }
        while let Some(unit) = &self.unit {
            let Some(offset) = self
                .records
                .as_slice()
                .first()
                .map(|record| record.offset.0)
            else {
                self.finish(shared);
                return Yield::Nothing;
            };
            if !unit.takes(offset) {
                self.records.next();
                continue;
            }
            let place = Place {
                partition: unit.partition(),
                term: unit.term,
                offset,
            };
            let handed = match ahead {
                // Acknowledged already: nobody else will ever get it.
                true => match shared.with(|core| core.acknowledged_ahead_counts(unit)) {
                    true => Handed::Yes { redelivery: false },
                    false => Handed::Void,
                },
                false => shared.with(|core| core.hand(place)),
            };
            match handed {
                Handed::Full => return Yield::Full,
                Handed::Void => {
                    self.records.next();
                }
                Handed::Yes { redelivery } => {
                    let record = self.records.next().expect("it was looked at");
                    return Yield::Record {
                        record,
                        place,
                        redelivery,
                    };
                }
            }
        }
        Yield::Nothing
    }

    /// The unit's own acknowledgement is decided.
    pub(super) fn ahead_decided(
        &mut self,
        number: u64,
        outcome: &Result<(), Error>,
        shared: &Shared,
    ) {
        if self
            .ahead
            .as_ref()
            .is_none_or(|(ahead, _)| *ahead != number)
        {
            // Another caller was told first.
            return;
        }
        self.ahead = None;
        if outcome.is_err() {
            // Whether it counts as acknowledged is not known, or it is another consumer's: it must not be handed out.
            self.records = Vec::new().into_iter();
            self.finish(shared);
        }
    }

    fn finish(&mut self, shared: &Shared) {
        if let Some(unit) = self.unit.take() {
            shared.with(|core| core.finish(&unit));
        }
    }
}
