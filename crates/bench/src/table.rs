//! The printed table: time, speed, peers with ratios, and the fraction of the machine's limit.

use std::fmt;

use crate::limits::Limits;
use crate::rows::{Goal, Peer, Row, Work};

/// The table's first line. A ratio above 1 means that wootz is faster than the peer.
pub const HEAD: &str = "op                                wootz ms      speed          limit  fraction  peers: ms (ratio)";

/// One measured row.
pub struct Line {
    title: String,
    seconds: Option<f64>,
    speed: Option<f64>,
    unit: &'static str,
    /// What the machine reaches; nothing for the time of a call.
    limit: Option<f64>,
    peers: Vec<(Peer, Option<f64>)>,
    bytes: Bytes,
}

/// The most memory a run takes, where that is compared: wootz by its counters, PyTorch by its
/// allocator's events.
#[derive(Clone, Copy)]
pub struct Bytes {
    /// Taken by wootz.
    pub own: Option<f64>,
    /// Taken by the peer.
    pub peer: Option<f64>,
}

impl Line {
    /// Puts times and limits together.
    pub fn new(
        row: &Row,
        seconds: Option<f64>,
        peers: Vec<(Peer, Option<f64>)>,
        limits: &Limits,
        bytes: Bytes,
    ) -> Line {
        let per_second = |amount: f64| seconds.map(|s| amount / 1e9 / s);
        let (speed, limit, unit) = match row.work {
            Work::Bytes(bytes) => (per_second(bytes), Some(limits.copy), "GB/s"),
            Work::Read(bytes) => (per_second(bytes), Some(limits.read), "GB/s"),
            Work::Flops(flops) => (per_second(flops), Some(limits.fma), "GFLOP/s"),
            Work::Calls(calls) => (seconds.map(|s| s * 1e9 / calls), None, "ns/call"),
        };
        Line { title: row.title(), seconds, speed, unit, limit, peers, bytes }
    }

    /// What this line misses of its row's goals, a missing subject included.
    pub fn misses(&self, row: &Row) -> Vec<String> {
        let Some(own) = self.seconds else { return vec![format!("{}: not measured", self.title)] };
        let mut out = Vec::new();
        for (peer, time) in &self.peers {
            if time.is_none() {
                out.push(format!("{}: NO PEER ({peer:?})", self.title));
            }
        }
        for goal in row.goals {
            match *goal {
                Goal::OfLimit(wanted) => {
                    let got = self.fraction().unwrap_or(0.0);
                    if got < wanted {
                        out.push(format!("{}: {got:.2} of the limit, wanted {wanted}", self.title));
                    }
                }
                Goal::Nanoseconds(most) => {
                    let got = self.speed.unwrap_or(f64::INFINITY);
                    if got > most {
                        out.push(format!("{}: {got:.0} ns, wanted {most}", self.title));
                    }
                }
                Goal::Memory(peer, wanted) => match (self.bytes.own, self.bytes.peer) {
                    (Some(own), Some(other)) if own <= wanted * other => {}
                    (Some(own), Some(other)) => out.push(format!(
                        "{}: {:.2} of {peer:?}'s memory, wanted {wanted}",
                        self.title,
                        own / other
                    )),
                    _ => out.push(format!("{}: memory not measured", self.title)),
                },
                Goal::OfPeer(peer, wanted) => {
                    let time = self.peers.iter().find(|(p, _)| *p == peer).and_then(|(_, t)| *t);
                    if let Some(got) = time.map(|t| t / own).filter(|got| *got < wanted) {
                        out.push(format!("{}: {got:.2} of {peer:?}, wanted {wanted}", self.title));
                    }
                }
            }
        }
        out
    }

    fn fraction(&self) -> Option<f64> {
        Some(self.speed? / self.limit?)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<32}", self.title)?;
        let text = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_string(), |value| format!("{value:.digits$}"))
        };
        let time = text(self.seconds.map(|s| s * 1e3), 3);
        let (speed, limit) = (text(self.speed, 1), text(self.limit, 1));
        let fraction = text(self.fraction(), 2);
        write!(f, "{time:>10} {speed:>7} {:<7}{limit:>7}   {fraction:>7} ", self.unit)?;
        for (peer, time) in &self.peers {
            match (time, self.seconds) {
                (Some(t), Some(own)) => write!(f, " {peer:?} {:.3} ({:.2})", t * 1e3, t / own)?,
                (Some(t), None) => write!(f, " {peer:?} {:.3}", t * 1e3)?,
                (None, _) => write!(f, " {peer:?} NO PEER")?,
            }
        }
        if let Some(own) = self.bytes.own {
            let peer = text(self.bytes.peer.map(|bytes| bytes / 1e6), 1);
            write!(f, "; peak {:.1} MB, peer {peer} MB", own / 1e6)?;
        }
        Ok(())
    }
}
