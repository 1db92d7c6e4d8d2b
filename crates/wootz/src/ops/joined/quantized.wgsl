fn add_rows(first: u32, lid: u32, sums: ptr<function, array<f32, SUMS>>) {
    add_units(first, p.n - first, p.x_at, lid, sums);
}
