// The sum of the gradients whose index is that of element `i`, in the order of the indices.
fn sum_at(i: u32) -> Wide {
    let inner = i % p.inner;
    let along = (i / p.inner) % p.length;
    let first = i / (p.inner * p.length) * p.count * p.inner + inner;
    var sum = Wide(0);
    for (var j = 0u; j < p.count; j += 1u) {
        let number = first + j * p.inner;
        if (place(indices(p.indices_offset + number), p.length).x == along) {
            sum += dy(p.other_offset + number);
        }
    }
    return sum;
}
