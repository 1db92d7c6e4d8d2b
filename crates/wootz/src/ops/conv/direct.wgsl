// Sizes and steps of a convolution over three spatial axes, and where its arrays begin.
struct Params {
    n: u32, batch: u32, groups: u32, channels: u32, outputs: u32, x_offset: u32, w_offset: u32,
    kernel0: u32,
    // MORE
}
var<immediate> p: Params;

fn kernel0() -> u32 { return p.kernel0; }

// A zero of the padding is multiplied, too.
fn input(element: u32, channel: u32) -> f32 {
    if (element == NOWHERE) { return 0.0; }
    return x(p.x_offset + element * p.groups * p.channels + channel);
}
