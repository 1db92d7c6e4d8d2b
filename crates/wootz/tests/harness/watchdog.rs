//! Ends the run when a case takes too long: a kernel that never returns cannot be stopped in any
//! other way, and a run that hangs does not say where.

use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::Subject;

/// Far more than any case takes, also on a loaded machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Watches one thread's work until it is dropped.
pub(crate) struct Watchdog(Sender<String>);

impl Watchdog {
    pub(crate) fn start() -> Watchdog {
        Watchdog::with(LIMIT, |current| {
            // Not `eprintln!`: what the test runner captures is lost when the process ends.
            let _ = writeln!(std::io::stderr(), "error: no end of {current} after {LIMIT:?}");
            std::process::exit(3);
        })
    }

    /// Calls `late` when nothing begins for longer than `limit`.
    fn with(limit: Duration, late: impl FnOnce(&str) + Send + 'static) -> Watchdog {
        let (sender, receiver) = channel::<String>();
        std::thread::spawn(move || {
            let mut current = String::from("the start");
            loop {
                match receiver.recv_timeout(limit) {
                    Ok(next) => current = next,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => return late(&current),
                }
            }
        });
        Watchdog(sender)
    }

    /// Says that work begins on a case, on the CPU or the GPU.
    pub(crate) fn case(&self, subject: &Subject, device: &str) {
        self.begin(format!("{}, case '{}', on the {device}", subject.op, subject.case.label));
    }

    /// Says that something else begins.
    pub(crate) fn begin(&self, what: String) {
        // The thread lives as long as this end, unless the time is up.
        let _ = self.0.send(what);
    }
}

#[test]
fn work_that_does_not_end_is_named() {
    let (sender, receiver) = channel();
    let late = move |current: &str| sender.send(current.to_string()).unwrap();
    let watchdog = Watchdog::with(Duration::from_millis(50), late);
    watchdog.begin("the first".into());
    watchdog.begin("the second".into());
    assert_eq!(receiver.recv_timeout(Duration::from_secs(60)).unwrap(), "the second");
    drop(watchdog);
}
