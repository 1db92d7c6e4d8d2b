//! The wootz command-line program.
fn main() {}
