const NOWHERE = 0xffffffffu;

// Where along an axis the element lies that an element of the kernel meets at an output; nowhere if
// that is a zero.
fn along(at: u32, stride: u32, tap: u32, kernel: u32, dilation: u32, low: i32, between: u32,
    length: u32) -> u32 {
    let place = select(tap, kernel - 1u - tap, FLIP);
    let reached = i32(at * stride + place * dilation) - low;
    if (reached < 0) { return NOWHERE; }
    let element = u32(reached) / between;
    if (element * between != u32(reached) || element >= length) { return NOWHERE; }
    return element;
}

fn along0(at: u32, tap: u32) -> u32 {
    return along(at, p.stride0, tap, kernel0(), p.kernel_dilation0, p.low0, p.input_dilation0, p.input0);
}

fn along1(at: u32, tap: u32) -> u32 {
    return along(at, p.stride1, tap, p.kernel1, p.kernel_dilation1, p.low1, p.input_dilation1, p.input1);
}

fn along2(at: u32, tap: u32) -> u32 {
    return along(at, p.stride2, tap, p.kernel2, p.kernel_dilation2, p.low2, p.input_dilation2, p.input2);
}

// The number of an element of the input; nowhere for a zero.
fn element(batch: u32, at: vec3<u32>) -> u32 {
    if (at.x == NOWHERE || at.y == NOWHERE || at.z == NOWHERE) { return NOWHERE; }
    return ((batch * p.input0 + at.x) * p.input1 + at.y) * p.input2 + at.z;
}
