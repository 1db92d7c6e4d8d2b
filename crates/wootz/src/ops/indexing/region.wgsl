    if (id >= p.n) { return; }
    out_set(p.out_offset + to_place(id), update(p.update_offset + from_place(id)));
}
