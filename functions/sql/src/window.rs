//! Windows of event time: TUMBLE and HOP, as panes (compute.md B8). A pane is the largest span that every window either holds whole or
//! not at all, so a row is kept once, in however many windows it counts.

use hulse_proto::time::TimestampMs;

/// Windows of `size`, one every `slide`, aligned to 1970. TUMBLE: `slide == size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    size: TimestampMs,
    slide: TimestampMs,
}

/// Most panes of a window.
const PANES_MAX: TimestampMs = 10_000;

impl Window {
    /// Both in milliseconds.
    ///
    /// # Errors
    /// Words that say what does not fit.
    pub fn new(size: TimestampMs, slide: TimestampMs) -> Result<Self, &'static str> {
        if slide < 1 || size < slide {
            return Err(
                "a window's size and slide are positive, and the slide is not longer than the size",
            );
        }
        let window = Self { size, slide };
        match size / window.pane() <= PANES_MAX {
            true => Ok(window),
            false => Err(
                "a window has at most 10,000 panes; let size and slide have a larger common divisor",
            ),
        }
    }

    /// Length of a pane.
    pub fn pane(&self) -> TimestampMs {
        let (mut a, mut b) = (self.size, self.slide);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    }

    /// True when each row is in one window, which is its pane.
    pub fn is_tumble(&self) -> bool {
        self.size == self.slide
    }

    /// Start of the pane of a time; none for times at the ends of what a timestamp can say.
    pub fn pane_start(&self, time: TimestampMs) -> Option<TimestampMs> {
        let start = time.div_euclid(self.pane()).checked_mul(self.pane())?;
        let room = self.size.checked_mul(2)?;
        (start.checked_add(room).is_some() && start.checked_sub(room).is_some()).then_some(start)
    }

    /// End of the pane that begins here.
    pub fn pane_end(&self, start: TimestampMs) -> TimestampMs {
        start + self.pane()
    }

    /// Ends of the windows that hold the pane that begins here, in order. One at least.
    pub fn ends(&self, pane_start: TimestampMs) -> impl Iterator<Item = TimestampMs> + use<> {
        let (size, slide) = (self.size, self.slide);
        let last = pane_start.div_euclid(slide) * slide;
        let first = (pane_start + self.pane() - size + slide - 1).div_euclid(slide) * slide;
        (0..)
            .map(move |number| first + number * slide)
            .take_while(move |start| *start <= last)
            .map(move |start| start + size)
    }

    /// End of the last window that holds the pane that begins here: at this watermark the pane is of no more use.
    pub fn last_end(&self, pane_start: TimestampMs) -> TimestampMs {
        pane_start.div_euclid(self.slide) * self.slide + self.size
    }

    /// Start of the window that ends here.
    pub fn start(&self, end: TimestampMs) -> TimestampMs {
        end - self.size
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ms every {} ms", self.size, self.slide)
    }
}

#[cfg(test)]
mod tests {
    use super::Window;

    #[test]
    fn windows_of_a_pane_are_those_that_hold_each_of_its_times() {
        for (size, slide) in [(60, 60), (10, 2), (10, 3), (10, 10), (7, 1), (12, 8)] {
            let window = Window::new(size, slide).unwrap();
            for time in -50..50 {
                let pane = window.pane_start(time).unwrap();
                let ends: Vec<_> = window.ends(pane).collect();
                let all = (-100..100).map(|number| number * slide);
                let holding: Vec<_> = all
                    .filter(|start| (*start..start + size).contains(&time))
                    .map(|start| start + size)
                    .collect();
                assert_eq!(ends, holding, "{time} in {window}");
                assert_eq!(ends.last(), Some(&window.last_end(pane)));
            }
        }
    }

    #[test]
    fn times_at_the_ends_of_the_range_have_no_pane() {
        let window = Window::new(60_000, 60_000).unwrap();
        assert_eq!(window.pane_start(i64::MAX), None);
        assert_eq!(window.pane_start(i64::MIN), None);
    }

    #[test]
    fn windows_that_cannot_be_are_refused() {
        for (size, slide) in [(0, 0), (10, 0), (10, 20), (1_000_000, 999_999)] {
            assert!(Window::new(size, slide).is_err(), "{size} {slide}");
        }
    }
}
