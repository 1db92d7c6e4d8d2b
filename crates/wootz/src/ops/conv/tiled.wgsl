// A convolution as products of matrices, one for each group. Of the parameters of such products
// `a_row` is the channels of a group, `b_row` the groups and `tiles` the first length of the kernel.
fn kernel0() -> u32 { return p.tiles; }

fn place(group: u32, side: u32) -> Place {
    let tiles = (p.m + side - 1u) / side * p.across;
    let batch = group / tiles;
    let tile = group % tiles;
    return Place(batch, p.a_offset + batch * p.a_row, p.b_offset + b_group(batch), 0u,
        (tile / p.across) * side, (tile % p.across) * side, p.m, p.k);
}

// Where a channel lies that the kernel's element `weight`, counted with channels, meets at an output.
fn met(tile: Place, position: u32, weight: u32) -> u32 {
    let channel = weight % p.a_row;
    var tap = weight / p.a_row;
    let tap2 = tap % p.kernel2;
    tap /= p.kernel2;
    var at = position;
    let at2 = at % p.output2;
    at /= p.output2;
    let at1 = at % p.output1;
    at /= p.output1;
    let places = vec3<u32>(
        along0(at % p.output0, tap / p.kernel1),
        along1(at1, tap % p.kernel1),
        along2(at2, tap2),
    );
    let number = element(at / p.output0, places);
    if (number == NOWHERE) { return NOWHERE; }
    return tile.a + number * p.b_row * p.a_row + channel;
}

fn out_at(tile: Place, row: u32) -> u32 {
    return (row * p.b_row + tile.batch) * p.n;
}

fn finish(start: u32, row: u32, column: u32, sum: f32) -> f32 { return sum; }
