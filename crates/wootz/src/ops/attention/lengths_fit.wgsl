// Whether there is room for the lengths of all batches: where one is reported, nothing is written.
fn lengths_fit() -> bool {
    for (var batch = 0u; batch < p.batch; batch++) {
        if (bitcast<u32>(length(p.length_offset + batch)) > p.keys) { return false; }
    }
    return true;
}
