//! Dead letters (serving.md B3.11): numbered, durably; then copied; then acked, durably. So a copy that is made again, also by the
//! next owner, has the same number, and the topic's owner stores it once.

use std::collections::BTreeMap;

use hulse_proto::id::Offset;
use hulse_proto::time::TimestampMs;

use crate::dispatcher::Dispatcher;
use crate::effect::{Effect, LetterWanted};
use crate::marks::{Letter, Mark};
use crate::policy::{DeadLetters, LETTERS_MAX};
use crate::runs::State;

/// A copy that could not be made is tried again after this.
const LETTER_RETRY_MS: TimestampMs = 1_000;

/// Letters under way.
#[derive(Debug)]
pub(crate) struct Letters {
    next: u64,
    /// By sequence.
    flight: BTreeMap<u64, Flight>,
    retry_at: Option<TimestampMs>,
}

#[derive(Debug)]
struct Flight {
    offset: u64,
    mark: Mark,
    /// Its number is durable.
    numbered: bool,
    /// The copy is durable, the ack not yet.
    copied: bool,
}

impl Letters {
    pub(crate) fn new(next: u64) -> Self {
        Self {
            next,
            flight: BTreeMap::new(),
            retry_at: None,
        }
    }

    pub(crate) fn next_retry(&self) -> Option<TimestampMs> {
        self.retry_at
    }

    /// Sequence of the next one.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn len(&self) -> usize {
        self.flight.len()
    }

    pub(crate) fn has(&self, offset: u64) -> bool {
        self.flight.values().any(|flight| flight.offset == offset)
    }
}

impl Dispatcher {
    /// After a take-over: those that have numbers are copied first, in order of their numbers.
    pub(crate) fn resume_letters(&mut self) {
        if self.policy.dead != DeadLetters::Topic {
            return;
        }
        for (range, mark) in self.marks.iter() {
            if let Letter::Numbered(seq) = mark.letter {
                let flight = Flight {
                    offset: range.first.0,
                    mark,
                    numbered: true,
                    copied: false,
                };
                self.letters.flight.insert(seq, flight);
            }
        }
        self.send_letters();
    }

    /// A run that is dead waits for a number, unless it has one.
    pub(crate) fn queue_letter(&mut self, first: u64) {
        if !self.letters.has(first) {
            self.queues.dying.insert(first);
        }
    }

    /// Gives out numbers, as far as there may be letters under way.
    pub(crate) fn number_letters(&mut self, now: TimestampMs) {
        while self.letters.len() < LETTERS_MAX
            && let Some(first) = self.queues.dying.first().copied()
        {
            self.split(first + 1);
            self.queues.dying.remove(&first);
            let seq = self.letters.next;
            self.letters.next += 1;
            let mark = Mark {
                letter: Letter::Numbered(seq),
                ..self.marks.get(first)
            };
            let asked = self.marks.get(first).letter == Letter::Wanted;
            let flight = Flight {
                offset: first,
                mark: if asked { self.marks.get(first) } else { mark },
                numbered: false,
                copied: false,
            };
            self.letters.flight.insert(seq, flight);
            self.gathering.mark(self.span(first), mark);
            self.gathering.letters = Some(self.letters.next);
            self.gathering.note(now);
        }
    }

    /// A number is durable.
    pub(crate) fn numbered(&mut self, seq: u64) {
        let (state_epoch, flight) = (self.state_epoch, self.letters.flight.get_mut(&seq));
        if let Some(flight) = flight.filter(|flight| !flight.numbered) {
            flight.numbered = true;
            let letter = wanted(seq, flight, state_epoch);
            self.effects.push(letter);
        }
    }

    /// Those that are asked for and not copied.
    #[cfg(test)]
    pub(crate) fn open_letters(&self) -> Vec<LetterWanted> {
        let open = self.letters.flight.iter();
        let open = open.filter(|(_, flight)| flight.numbered && !flight.copied);
        let wanted = open.map(|(seq, flight)| wanted(*seq, flight, self.state_epoch));
        let letters = wanted.map(|effect| match effect {
            Effect::Letter(letter) => letter,
            _ => unreachable!("it is one"),
        });
        letters.collect()
    }

    /// Asks for all copies that are not made, in order.
    fn send_letters(&mut self) {
        let open = self.letters.flight.iter();
        let open = open.filter(|(_, flight)| flight.numbered && !flight.copied);
        let wanted = open.map(|(seq, flight)| wanted(*seq, flight, self.state_epoch));
        self.effects.extend(wanted);
    }

    /// The copy is durable: the record counts as processed when that is durable too.
    pub fn letter_done(&mut self, state_epoch: u32, seq: u64, now: TimestampMs) {
        if state_epoch != self.state_epoch {
            return;
        }
        let flight = self.letters.flight.get_mut(&seq);
        let Some(flight) = flight.filter(|flight| flight.numbered && !flight.copied) else {
            return;
        };
        flight.copied = true;
        let offset = flight.offset;
        let span = crate::range::OffsetRange::new(offset, offset + 1);
        self.counts.letters += 1;
        if offset >= self.runs.next() {
            self.process_ahead(span, now);
            return;
        }
        for first in self.cut(span) {
            if matches!(self.runs.get(first).state, State::Dying | State::Grace) {
                self.runs.get_mut(first).state = State::Acking;
                self.gathering.acks.insert(span);
                self.gathering.note(now);
            }
        }
    }

    /// The copy could not be made. Nothing is acked; it is asked for again, and those behind it.
    pub fn letter_failed(&mut self, state_epoch: u32, seq: u64, now: TimestampMs) {
        if state_epoch == self.state_epoch && self.letters.flight.contains_key(&seq) {
            self.letters.retry_at.get_or_insert(now + LETTER_RETRY_MS);
        }
    }

    /// It is time to ask again.
    pub(crate) fn retry_letters(&mut self, now: TimestampMs) {
        if self.letters.retry_at.is_some_and(|at| at <= now) {
            self.letters.retry_at = None;
            self.send_letters();
        }
    }

    /// These records are processed: their letters are no more under way.
    pub(crate) fn end_letters(&mut self, range: crate::range::OffsetRange) {
        let within = |flight: &Flight| range.contains(Offset(flight.offset));
        self.letters.flight.retain(|_, flight| !within(flight));
    }

    /// The cursor was moved: numbers begin anew under the new state epoch, and older letters are fenced by it.
    pub(crate) fn reset_letters(&mut self) {
        self.letters = Letters::new(0);
        self.queues.dying.clear();
    }
}

fn wanted(seq: u64, flight: &Flight, state_epoch: u32) -> Effect {
    Effect::Letter(LetterWanted {
        offset: Offset(flight.offset),
        state_epoch,
        seq,
        failed: flight.mark.failed,
        why: flight.mark.why,
        asked: flight.mark.letter == Letter::Wanted,
    })
}
