//! Measures wootz beside its peers, in turns within one run, against the machine's limits.

mod crates;
mod limits;
mod rows;
mod table;
mod torch;
mod training;
mod wootz_side;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Parser;

use crate::limits::Limits;
use crate::rows::{Peer, Row};
use crate::table::{Bytes, Line};
use crate::torch::Torch;

/// Threads of every subject: what the peers' published figures use.
pub const THREADS: usize = 2;
/// Rounds of a measurement; each subject runs `REPS` times per round and the best time counts.
const ROUNDS: usize = 12;
const REPS: usize = 3;
/// Peers' threads spin after their work; let them park before the next subject runs.
const PAUSE: Duration = Duration::from_millis(60);

#[derive(Parser)]
struct Arguments {
    /// The Python that has PyTorch
    #[arg(long, requires = "script")]
    torch: Option<PathBuf>,
    /// The program that answers for PyTorch
    #[arg(long)]
    script: Option<PathBuf>,
    /// Fail on a missing peer or a missed goal
    #[arg(long)]
    check: bool,
    /// Only rows whose name contains this
    #[arg(long)]
    filter: Option<String>,
}

/// Something that can be run and timed: returns the best seconds of some repetitions.
pub type Subject = Box<dyn FnMut(usize) -> Result<f64>>;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut torch = match (&arguments.torch, &arguments.script) {
        (Some(python), Some(script)) => Some(Torch::start(python, script)?),
        _ => None,
    };
    println!("{}", Limits::measure(ROUNDS));
    println!(
        "peers: {}; {}",
        torch.as_ref().map_or("PyTorch: NO PEER", Torch::version),
        crates::VERSIONS
    );
    println!("{}", table::HEAD);
    let filter = arguments.filter.as_deref().unwrap_or("");
    let mut misses = Vec::new();
    for row in rows::all().iter().filter(|r| r.name.contains(filter)) {
        let line = measure(row, torch.as_mut())?;
        println!("{line}");
        misses.extend(line.misses(row));
    }
    for miss in &misses {
        println!("MISSED: {miss}");
    }
    if arguments.check && !misses.is_empty() {
        bail!("{} goals missed or peers missing", misses.len());
    }
    Ok(())
}

/// Runs wootz and the row's peers in turns and keeps each one's best time.
fn measure(row: &Row, torch: Option<&mut Torch>) -> Result<Line> {
    let mut own = wootz_side::subject(row)?;
    let mut peers: Vec<(Peer, Option<Subject>, f64)> = Vec::new();
    for &peer in row.peers {
        let subject = if peer == Peer::Torch { None } else { crates::subject(peer, row)? };
        peers.push((peer, subject, f64::INFINITY));
    }
    let mut limits = Limits::default();
    let mut best = f64::INFINITY;
    let mut torch = torch;
    let mut bytes = Bytes { own: wootz_side::peak_bytes(row)?, peer: None };
    for _ in 0..ROUNDS {
        // What the machine gives changes by the second, so the limits take part in the turns.
        limits = limits.best(&Limits::measure(REPS));
        if let Some(own) = &mut own {
            best = best.min(own(REPS)?);
            std::thread::sleep(PAUSE);
        }
        for (peer, subject, time) in &mut peers {
            let seconds = match (peer, subject, torch.as_deref_mut()) {
                // A peer that cannot run is one that is missing, and says why.
                (Peer::Torch, _, Some(torch)) => match torch.time(row, REPS) {
                    Ok((seconds, taken)) => {
                        bytes.peer = taken;
                        seconds
                    }
                    Err(error) => {
                        eprintln!("{}: {error}", row.title());
                        continue;
                    }
                },
                (_, Some(subject), _) => subject(REPS)?,
                _ => continue,
            };
            *time = time.min(seconds);
            std::thread::sleep(PAUSE);
        }
    }
    let finite = |t: f64| t.is_finite().then_some(t);
    let peers = peers.into_iter().map(|(p, _, t)| (p, finite(t))).collect();
    Ok(Line::new(row, finite(best), peers, &limits, bytes))
}

/// The best of `reps` timed runs.
pub fn best_of(reps: usize, mut run: impl FnMut()) -> f64 {
    (0..reps)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}
