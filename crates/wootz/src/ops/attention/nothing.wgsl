// There are no keys: zeros, and the log-sum-exp of the sinks alone.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let i = (wid.x + wid.y * groups.x) * 256u + lid;
    let row = i / DV;
    if (row >= p.batch * p.heads * p.queries) { return; }
    report_length(row / p.queries / p.heads);
    if (!lengths_fit()) { return; }
    out_set(i, 0.0);
    if (i % DV == 0u) { lse_set(row, ended(row / p.queries % p.heads, LOWEST, 0.0).lse); }
}
