//! All operations. An operation is a folder, or a row of the elementwise or reduction tables, or a
//! function in `composed`; this file is the only list of them.

mod attention;
mod composed;
mod cross_entropy;
pub(crate) mod elementwise;
mod experts;
pub(crate) mod fft;
mod hadamard;
mod indexing;
pub mod linalg;
mod matmul;
pub(crate) mod movement;
mod norms;
mod quantized;
mod random_bits;
mod reduce;
mod rope;
mod scan;
mod softmax;
mod sort;
mod state_space;

pub use attention::*;
pub use composed::*;
pub use cross_entropy::*;
pub use elementwise::*;
pub(crate) use elementwise::{constant, identity_op, log_c, log1p_c};
pub use experts::*;
pub use hadamard::*;
pub use indexing::*;
pub use matmul::*;
pub use movement::*;
pub use norms::*;
pub use quantized::*;
pub(crate) use random_bits::*;
pub use reduce::*;
pub use rope::*;
pub use scan::*;
pub use softmax::*;
pub use sort::*;
pub use state_space::*;

use crate::op::Entry;

/// Every registered operation, with its cases.
pub fn registered() -> Vec<Entry> {
    let families = [
        attention::entries(),
        cross_entropy::entries(),
        elementwise::entries(),
        experts::entries(),
        fft::entries(),
        hadamard::entries(),
        indexing::entries(),
        linalg::entries(),
        matmul::entries(),
        movement::entries(),
        norms::entries(),
        quantized::entries(),
        random_bits::entries(),
        reduce::entries(),
        rope::entries(),
        scan::entries(),
        softmax::entries(),
        sort::entries(),
        state_space::entries(),
        composed::entries(),
    ];
    families.into_iter().flatten().collect()
}
