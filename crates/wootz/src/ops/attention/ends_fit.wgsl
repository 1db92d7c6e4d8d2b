// Ends must be in order and cover their axis: where one is reported, nothing is written.
fn end_fits(number: u32, before: i32, end: i32, length: u32) -> bool {
    return end >= before && end <= i32(length) && (number > 0u || end == 0i)
        && (number < p.sequences || end == i32(length));
}

// The number of the first end that does not fit, or one past the last.
fn wrong_query_end() -> u32 {
    var before = 0i;
    for (var number = 0u; number <= p.sequences; number++) {
        let end = query_ends(p.length_offset + number);
        if (!end_fits(number, before, end, p.queries)) { return number; }
        before = end;
    }
    return p.sequences + 1u;
}

fn wrong_key_end() -> u32 {
    var before = 0i;
    for (var number = 0u; number <= p.sequences; number++) {
        let end = key_ends(p.key_ends_offset + number);
        if (!end_fits(number, before, end, p.keys)) { return number; }
        before = end;
    }
    return p.sequences + 1u;
}

fn lengths_fit() -> bool {
    return wrong_query_end() > p.sequences && wrong_key_end() > p.sequences;
}
