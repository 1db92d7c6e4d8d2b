//! All operations. An operation is a folder, or a row of the elementwise or reduction tables, or a
//! function in `composed`; this file is the only list of them.

mod aliases;
mod attention;
mod composed;
mod conv;
mod cross_entropy;
mod einsum;
pub(crate) mod elementwise;
mod experts;
pub(crate) mod fft;
mod fp8;
mod hadamard;
mod indexing;
mod joined;
pub mod linalg;
mod matmul;
pub(crate) mod movement;
mod norms;
mod products;
mod quantized;
mod random_bits;
mod reduce;
mod rope;
mod scan;
mod softmax;
mod sort;
mod state_space;

pub use aliases::*;
pub use attention::*;
pub use composed::*;
pub use conv::*;
pub use cross_entropy::*;
pub use einsum::*;
pub use elementwise::*;
pub(crate) use elementwise::{constant, identity_op, log_c, log1p_c, normal_cdf};
pub use experts::*;
pub use fp8::*;
pub use hadamard::*;
pub use indexing::*;
pub use joined::*;
pub use matmul::*;
pub use movement::*;
pub use norms::*;
pub use products::*;
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
        conv::entries(),
        cross_entropy::entries(),
        einsum::entries(),
        elementwise::entries(),
        experts::entries(),
        fft::entries(),
        fp8::entries(),
        hadamard::entries(),
        indexing::entries(),
        joined::entries(),
        linalg::entries(),
        matmul::entries(),
        movement::entries(),
        norms::entries(),
        products::entries(),
        quantized::entries(),
        random_bits::entries(),
        reduce::entries(),
        rope::entries(),
        scan::entries(),
        softmax::entries(),
        sort::entries(),
        state_space::entries(),
        composed::entries(),
        crate::nn::activation_entries(),
    ];
    families.into_iter().flatten().collect()
}
