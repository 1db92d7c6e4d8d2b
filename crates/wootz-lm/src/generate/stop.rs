//! Texts that end a generation, found across the borders of tokens.

use std::mem;

/// Lets text through until one of the stop texts appears. What may be the beginning of one is held
/// back until it is known.
pub(crate) struct StopTexts {
    stops: Vec<String>,
    /// The end of the text so far that may begin a stop text.
    held: String,
}

/// What became of a piece of text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    /// Text that no stop text can begin in.
    pub text: String,
    /// The stop text that was found, right behind `text`.
    pub stopped_by: Option<String>,
}

impl StopTexts {
    pub(crate) fn new(stops: &[String]) -> StopTexts {
        StopTexts { stops: stops.to_vec(), held: String::new() }
    }

    pub(crate) fn push(&mut self, text: &str) -> Passed {
        if self.stops.is_empty() {
            return Passed { text: text.to_string(), stopped_by: None };
        }
        self.held.push_str(text);
        // The first place counts, and of several texts that begin there the longest.
        let found = self.stops.iter().filter_map(|stop| Some((self.held.find(stop)?, stop)));
        if let Some((place, stop)) =
            found.min_by_key(|(place, stop)| (*place, usize::MAX - stop.len()))
        {
            let stopped_by = Some(stop.clone());
            self.held.truncate(place);
            return Passed { text: mem::take(&mut self.held), stopped_by };
        }
        let keep = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let kept = self.held.split_off(self.held.len() - keep);
        Passed { text: mem::replace(&mut self.held, kept), stopped_by: None }
    }

    /// What was held back, when no more text comes.
    pub(crate) fn finish(&mut self) -> String {
        mem::take(&mut self.held)
    }
}

/// The length of the longest end of `text` that `stop` begins with.
fn overlap(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len().saturating_sub(1));
    let fits = |length: &usize| {
        stop.is_char_boundary(*length) && text.as_bytes().ends_with(&stop.as_bytes()[..*length])
    };
    (1..=longest).rev().find(fits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All text that passes, and what stopped it.
    fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<String>) {
        let stops: Vec<String> = stops.iter().map(|stop| stop.to_string()).collect();
        let mut texts = StopTexts::new(&stops);
        let mut all = String::new();
        for piece in pieces {
            let passed = texts.push(piece);
            all.push_str(&passed.text);
            if passed.stopped_by.is_some() {
                return (all, passed.stopped_by);
            }
        }
        all.push_str(&texts.finish());
        (all, None)
    }

    #[test]
    fn a_stop_text_is_found_wherever_the_pieces_are_cut() {
        let text = "one\n\ntwo äöü END of it";
        for stop in ["\n\n", "END", "öü E", "t"] {
            let expected = text.split(stop).next().unwrap();
            let cuts: Vec<usize> = (0..=text.len()).filter(|&i| text.is_char_boundary(i)).collect();
            for &first in &cuts {
                for &second in cuts.iter().filter(|&&second| second >= first) {
                    let pieces = [&text[..first], &text[first..second], &text[second..]];
                    let (shown, by) = run(&[stop], &pieces);
                    assert_eq!((shown.as_str(), by.as_deref()), (expected, Some(stop)));
                }
            }
        }
    }

    #[test]
    fn what_only_looked_like_a_stop_text_is_shown() {
        assert_eq!(run(&["<end>"], &["a <e", "n", "d"]), ("a <end".into(), None));
        assert_eq!(run(&["aab"], &["a", "a", "a", "b"]), ("a".into(), Some("aab".into())));
        assert_eq!(run(&[], &["a", "b"]), ("ab".into(), None));
    }

    #[test]
    fn the_first_place_counts_and_there_the_longest_text() {
        assert_eq!(run(&["b", "abc"], &["xabc"]), ("x".into(), Some("abc".into())));
        assert_eq!(run(&["ab", "abc"], &["xabc"]), ("x".into(), Some("abc".into())));
    }
}
