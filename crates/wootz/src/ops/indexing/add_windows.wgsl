    // Threads for each update, in order; those of the first of a window add up all of them, and round once.
    if (id >= p.n) { return; }
    let inner = id % p.run;
    let rank = id / p.run % p.count;
    let outer = id / p.run / p.count;
    let window = offsets(order(p.order_offset + rank));
    if (rank > 0u) {
        if (offsets(order(p.order_offset + rank - 1u)) == window) { return; }
    }
    let place = before(outer) + after(inner) + window;
    var sum = 0.0;
    for (var next = rank; next < p.count; next += 1u) {
        let number = order(p.order_offset + next);
        if (offsets(number) != window) { break; }
        sum += updates(p.updates_offset + (outer * p.count + number) * p.run + inner);
    }
    out_set(place, sum);
}
