// One workgroup per row: the dot product of y and dy, then y·(dy − dot).

struct Params { rows: u32, columns: u32, y_offset: u32, dy_offset: u32 }
var<immediate> p: Params;

const WIDTH = 128u;

var<workgroup> partial: array<f32, WIDTH>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lid: u32) {
    let row = wid.x + wid.y * groups.x;
    let base = row * p.columns;
    // The last groups of a grid may lie past the end; they still meet the barriers.
    let columns = select(0u, p.columns, row < p.rows);
    var dot = 0.0;
    for (var column = lid; column < columns; column += WIDTH) {
        dot += y(p.y_offset + base + column) * dy(p.dy_offset + base + column);
    }
    partial[lid] = dot;
    workgroupBarrier();
    for (var half = WIDTH / 2u; half > 0u; half = half / 2u) {
        if (lid < half) { partial[lid] = partial[lid] + partial[lid + half]; }
        workgroupBarrier();
    }
    dot = partial[0];
    for (var column = lid; column < columns; column += WIDTH) {
        let value = y(p.y_offset + base + column) * (dy(p.dy_offset + base + column) - dot);
        out_set(base + column, value);
    }
}
