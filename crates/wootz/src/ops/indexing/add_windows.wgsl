    // Threads for each update, in order; those of the first of a window add up all of them, and round once. What goes
    // on in the next part of the updates is left for the second pass: its beginning, and what others began.
    if (id >= p.n) { return; }
    let inner = id % p.run;
    let rank = id / p.run % p.count;
    let outer = id / p.run / p.count;
    let window = window_of(rank);
    var first = rank == 0u;
    if (!first) { first = window_of(rank - 1u) != window; }
    if (!first && rank % PART != 0u) { return; }
    let end = min((rank / PART + 1u) * PART, p.count);
    var sum = 0.0;
    var next = rank;
    for (; next < end; next += 1u) {
        let number = order(p.order_offset + next);
        if (offsets(number) != window) { break; }
        sum += updates(p.updates_offset + (outer * p.count + number) * p.run + inner);
    }
    var goes_on = false;
    if (next == end && end < p.count) { goes_on = window_of(end) == window; }
    if (first && !goes_on) {
        out_set(before(outer) + after(inner) + window, sum);
        return;
    }
    offsets_data[sum_at(outer, rank / PART, first) + inner] = bitcast<u32>(sum);
}
