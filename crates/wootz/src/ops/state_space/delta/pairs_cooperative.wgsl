// As `pairs_tiled.wgsl`, of cooperative matrices: a subgroup has two of each kind, side by side.
struct Pairs { a: Sum, b: Sum, c: Sum, d: Sum }
fn no_pairs() -> Pairs {
    let zero = coopLoadT<Sum>(&nothing[0], 8u);
    return Pairs(zero, zero, zero, zero);
}

fn add_pairs(sums: ptr<function, Pairs>, thread: u32, subgroup: u32) {
    let row = subgroup % 8u / 2u * 8u * PITCH;
    let column = subgroup % 2u * 16u * PITCH;
    for (var i = 0u; i < DEPTH; i += 8u) {
        let x = coopLoad<Right>(&tile[2u * SIDE + column + i], PITCH);
        let y = coopLoad<Right>(&tile[2u * SIDE + column + 8u * PITCH + i], PITCH);
        if (CORRECTS) {
            let one = coopLoadT<Left>(&tile[ONE + row + i], PITCH);
            (*sums).a = coopMultiplyAdd(one, x, (*sums).a);
            (*sums).b = coopMultiplyAdd(one, y, (*sums).b);
        }
        let two = coopLoadT<Left>(&tile[SIDE + row + i], PITCH);
        (*sums).c = coopMultiplyAdd(two, x, (*sums).c);
        (*sums).d = coopMultiplyAdd(two, y, (*sums).d);
    }
}

fn keep_pairs(sums: ptr<function, Pairs>, at: u32, thread: u32, subgroup: u32) {
    let to = at + subgroup % 8u / 2u * 8u * STEPS + subgroup % 2u * 16u;
    if (CORRECTS) {
        coopStoreT((*sums).a, &memory[to], STEPS);
        coopStoreT((*sums).b, &memory[to + 8u], STEPS);
    }
    coopStoreT((*sums).c, &memory[to + SECOND], STEPS);
    coopStoreT((*sums).d, &memory[to + SECOND + 8u], STEPS);
}
