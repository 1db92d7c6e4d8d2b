//! What the simulation computes, what it refuses, and what it counts.

mod correct;
mod counting;
mod matrices;
mod refused;
mod run_time;
mod support;
