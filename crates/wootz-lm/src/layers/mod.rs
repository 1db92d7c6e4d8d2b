//! What models are made of. A layer's fields have the names of the checkpoint's keys.

mod attention;
mod delta_net;
mod linear;
mod mlp;
mod norm;
mod rope;

pub use attention::{Attention, AttentionConfig};
pub use delta_net::{DeltaConfig, GatedDeltaNet};
pub use linear::{Embedding, Linear, SwitchLinear};
pub use mlp::{Activation, FeedForward, GatedMlp, MoeConfig, SparseMoe, SwitchGlu};
pub use norm::{Residual, RmsNorm};
pub use rope::{Rope, RopeConfig};
