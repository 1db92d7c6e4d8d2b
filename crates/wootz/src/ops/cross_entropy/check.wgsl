    if (id >= p.rows) { return; }
    let label = labels(p.labels_offset + id);
    if (counts(id) && place(label, p.columns).y == 0u) { report(p.site, bits(label)); }
}
