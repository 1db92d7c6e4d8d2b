//! Ends the program when a case takes too long: a kernel that never returns cannot be stopped in
//! any other way, and a run that hangs says nothing.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::case::Case;

const LIMIT: Duration = Duration::from_secs(120);

/// Watches until it is dropped.
pub(crate) struct Watchdog(Sender<String>);

impl Watchdog {
    pub(crate) fn start() -> Watchdog {
        let (sender, receiver) = channel::<String>();
        std::thread::spawn(move || {
            let mut current = String::from("reading cases");
            loop {
                match receiver.recv_timeout(LIMIT) {
                    Ok(next) => current = next,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        eprintln!("error: no end of {current} after {LIMIT:?}");
                        std::process::exit(3);
                    }
                }
            }
        });
        Watchdog(sender)
    }

    /// Says that work on a case begins.
    pub(crate) fn begin(&self, case: &Case) {
        // The thread lives as long as this end.
        let _ = self.0.send(format!("case {} of {}", case.id, case.op));
    }
}
