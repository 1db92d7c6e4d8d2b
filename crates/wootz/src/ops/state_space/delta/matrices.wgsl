// What products of cooperative matrices need. Compilers need not agree on what a matrix made of nothing holds.
alias Left = coop_mat8x8<f32, A>;
alias Right = coop_mat8x8<f32, B>;
alias Sum = coop_mat8x8<f32, C>;
var<workgroup> nothing: array<f32, 64>;

fn clear(thread: u32) {
    if (thread < 64u) { nothing[thread] = 0.0; }
    workgroupBarrier();
}
