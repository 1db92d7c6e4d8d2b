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
    limit: f64,
    peers: Vec<(Peer, Option<f64>)>,
}

impl Line {
    /// Puts times and limits together.
    pub fn new(
        row: &Row,
        seconds: Option<f64>,
        peers: Vec<(Peer, Option<f64>)>,
        limits: &Limits,
    ) -> Line {
        let (amount, limit, unit) = match row.work {
            Work::Bytes(b) => (b / 1e9, limits.copy, "GB/s"),
            Work::Flops(f) => (f / 1e9, limits.fma, "GFLOP/s"),
        };
        Line { title: row.title(), seconds, speed: seconds.map(|s| amount / s), unit, limit, peers }
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
                    let got = self.speed.unwrap_or(0.0) / self.limit;
                    if got < wanted {
                        out.push(format!("{}: {got:.2} of the limit, wanted {wanted}", self.title));
                    }
                }
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
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<32}", self.title)?;
        match (self.seconds, self.speed) {
            (Some(s), Some(v)) => {
                write!(
                    f,
                    "{:>10.3} {v:>7.1} {:<7}{:>7.1}   {:>7.2} ",
                    s * 1e3,
                    self.unit,
                    self.limit,
                    v / self.limit
                )?;
            }
            _ => write!(
                f,
                "{:>10} {:>7} {:<7}{:>7.1}   {:>7} ",
                "-", "-", self.unit, self.limit, "-"
            )?,
        }
        for (peer, time) in &self.peers {
            match (time, self.seconds) {
                (Some(t), Some(own)) => write!(f, " {peer:?} {:.3} ({:.2})", t * 1e3, t / own)?,
                (Some(t), None) => write!(f, " {peer:?} {:.3}", t * 1e3)?,
                (None, _) => write!(f, " {peer:?} NO PEER")?,
            }
        }
        Ok(())
    }
}
