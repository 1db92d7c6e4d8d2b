//! Tiles of attention made of cooperative matrices: 8x8 elements that the 32 threads of a subgroup hold
//! together. Only the two products are other texts than elsewhere; masks, softmax and what becomes of
//! the sums are the same.

use std::fmt::Write;

use super::text::{Load, Tile, WIDTH};
use crate::gpu::{APPLE7, GpuCall};

/// Subgroups of a workgroup: where there are such matrices, a subgroup has 32 threads.
const SUBGROUPS: usize = WIDTH / 32;
/// Lines whose weighted sum is taken at a time.
const LINES: usize = 32;
/// What a row of a tile has more than its columns, so that the rows of a matrix lie on different banks.
const PAD: usize = 4;

/// How a tile is made of matrices.
#[derive(Clone, Copy)]
pub(super) struct Matrices {
    /// Whether factors of scores are `f16` as they are; else they are widened.
    pub(super) native: bool,
    /// Columns that are added at a time, at most.
    most: usize,
}

/// What a kernel keeps in workgroup memory beside the piece it works on.
pub(super) struct Kept<'w> {
    /// Rows that there are to take.
    pub(super) rows: usize,
    /// Widths of the arrays that it holds rows of.
    pub(super) held: &'w [usize],
    /// Widths of the arrays whose lines it sums.
    pub(super) summed: &'w [usize],
    /// Tiles of weights.
    pub(super) tiles: usize,
}

impl Matrices {
    /// The largest tile with room in the workgroup memory of every GPU that has such matrices; `None`
    /// where this one has none or the widths are no multiples of a matrix's.
    pub(super) fn tile(call: &GpuCall<'_>, native: bool, kept: &Kept<'_>) -> Option<Tile> {
        let mut widths = kept.held.iter().chain(kept.summed);
        let whole = widths.all(|&width| width > 0 && width.is_multiple_of(8));
        if !whole || !call.gpu().has_cooperative_matrix() {
            return None;
        }
        let native = native && call.gpu().has_f16();
        let most_rows = kept.rows.next_power_of_two().clamp(8, 32);
        [(32, 64), (32, 32), (16, 64), (16, 32), (8, 64)].into_iter().find_map(|(rows, most)| {
            let matrices = Matrices { native, most };
            let tile = Tile { rows, lines: (512 / rows).max(LINES), matrices: Some(matrices) };
            // A thread has a bit for each of its sums.
            let marked = kept.summed.iter().all(|&width| tile.sums(width).0 <= 32);
            let fits = matrices.memory(&tile, kept) as u64 <= APPLE7.threadgroup_bytes;
            (rows <= most_rows && marked && fits).then_some(tile)
        })
    }

    fn memory(&self, tile: &Tile, kept: &Kept<'_>) -> usize {
        let size = if self.native { 2 } else { 4 };
        let held: usize = kept.held.iter().map(|width| self.pitch(*width) * size).sum();
        let tiles = kept.tiles * (tile.lines + PAD) * 4;
        // A factor a row; the piece of factors; a matrix of zeros, and bounds and flags.
        let narrow = if self.native { self.factors(tile) * 2 } else { 0 };
        // What is known of the rows of a tile, where two are kept.
        let rows = if kept.tiles > 1 { tile.lines * 16 } else { 0 };
        tile.rows * (held + tiles + 4) + self.piece(tile) * 4 + narrow + rows + 512
    }

    /// The place of a row's factors behind that of the row before.
    pub(super) fn pitch(&self, columns: usize) -> usize {
        columns + if self.native { 2 * PAD } else { PAD }
    }

    /// Columns of lines that are in memory at a time for scores.
    fn step(&self, tile: &Tile) -> usize {
        self.most.min(2048 / tile.lines)
    }

    fn factors(&self, tile: &Tile) -> usize {
        tile.lines * self.pitch(self.step(tile))
    }

    /// Numbers of the piece of lines that is in memory at a time.
    fn piece(&self, tile: &Tile) -> usize {
        let sums = LINES * (self.most + PAD);
        if self.native { sums } else { sums.max(self.factors(tile)) }
    }

    /// The type of factors of scores.
    pub(super) fn factor(&self) -> &'static str {
        if self.native { "f16" } else { "f32" }
    }

    pub(super) fn extensions(&self) -> &'static str {
        match self.native {
            true => "enable f16;\nenable wgpu_cooperative_matrix;\n",
            false => "enable wgpu_cooperative_matrix;\n",
        }
    }

    /// What stands before all functions.
    pub(super) fn head(&self, tile: &Tile) -> String {
        let (factor, pitch, piece) = (self.factor(), tile.lines + PAD, self.piece(tile));
        let mut head = format!(
            "alias Left = coop_mat8x8<{factor}, A>;\nalias Right = coop_mat8x8<{factor}, B>;\n\
             alias Weights = coop_mat8x8<f32, A>;\nalias Lines = coop_mat8x8<f32, B>;\n\
             alias Sum = coop_mat8x8<f32, C>;\n\
             const PITCH = {pitch}u;\n\
             var<workgroup> piece: array<f32, {piece}>;\n"
        );
        if self.native {
            let _ = writeln!(head, "var<workgroup> factors: array<f16, {}>;", self.factors(tile));
        }
        head + include_str!("cooperative.wgsl")
    }

    /// Columns that are added at a time, and how many times that is: few enough that little is added
    /// that no row has.
    pub(super) fn columns(&self, rows: usize, width: usize) -> (usize, usize) {
        let half = width.next_multiple_of(32) < width.next_multiple_of(64);
        let columns = if rows > 8 && half { 32 } else { self.most };
        (columns, width.div_ceil(columns))
    }

    /// `products_NAME`: see the plain one. A subgroup has matrices of one row of them.
    pub(super) fn products(&self, tile: &Tile, load: &Load, held: &str, width: usize) -> String {
        let (name, step) = (&load.name, self.step(tile).min(width));
        let (pitch, held_pitch) = (self.pitch(step), self.pitch(width));
        let piece = if self.native { "factors" } else { "piece" };
        let across = tile.lines / 8;
        let per = tile.rows / 8 * across / SUBGROUPS;
        let body = load.copy(piece, tile.lines, step, pitch, width, self.factor());
        let each = |text: &dyn Fn(usize) -> String| (0..per).map(text).collect::<String>();
        let sums = each(&|i| format!("var s{i} = zero;\n"));
        let steps = each(&|i| {
            format!(
                "let b{i} = coopLoad<Right>(&{piece}[(left + {at}u) * {pitch}u + e], {pitch}u);\n\
                 s{i} = coopMultiplyAdd(a, b{i}, s{i});\n",
                at = 8 * i
            )
        });
        let stores = each(&|i| {
            format!("coopStoreT(s{i}, &tile[top * PITCH + left + {}u], PITCH);\n", 8 * i)
        });
        format!(
            "fn products_{name}(base: u32, first: u32, end: u32, r: u32, lane: u32, lid: u32, \
             subgroup: u32) -> array<f32, PER> {{\n\
             let number = subgroup % {SUBGROUPS}u * {per}u;\n\
             let top = number / {across}u * 8u;\nlet left = number % {across}u * 8u;\n\
             let zero = coopLoadT<Sum>(&nothing[0], 8u);\n{sums}\
             for (var start = 0u; start < {width}u; start += {step}u) {{\n{body}\
             workgroupBarrier();\n\
             for (var e = 0u; e < min({step}u, {width}u - start); e += 8u) {{\n\
             let a = coopLoadT<Left>(&held_{held}[top * {held_pitch}u + start + e], {held_pitch}u);\n\
             {steps}}}\n\
             workgroupBarrier();\n}}\n{stores}\
             workgroupBarrier();\n\
             var own: array<f32, PER>;\n\
             for (var t = 0u; t < PER; t++) {{ own[t] = tile[r * PITCH + lane + t * LANES]; }}\n\
             return own;\n}}\n"
        )
    }

    /// `none_NAME`, `add_NAME` and `columns_NAME`: see the plain ones. A subgroup has, of each piece of
    /// columns, matrices of one column of them. What is no finite number is not multiplied, because it
    /// must not reach rows that do not see it: it is marked.
    pub(super) fn sums(&self, tile: &Tile, load: &Load, weights: &str, width: usize) -> String {
        let name = &load.name;
        let Shape { columns, pieces, rows, across, pitch } = self.shape(tile, width);
        let sums = pieces * columns / tile.lanes();
        let members: String = (0..pieces * rows).map(|i| format!("m{i}: Sum, ")).collect();
        let zeros = "zero, ".repeat(pieces * rows);
        let body = load.copy("piece", LINES, columns, pitch, width, "finite");
        // The lines of the piece follow those before it.
        let body = body.replace("first +", "first + line +");
        let (mut adds, mut stores) = (String::new(), String::new());
        for piece in 0..pieces {
            let each = |text: &dyn Fn(usize, usize) -> String| -> String {
                (0..rows).map(|i| text(8 * i, piece * rows + i)).collect()
            };
            let products = each(&|down, i| {
                format!(
                    "let a{i} = coopLoadT<Weights>(&{weights}[(top + {down}u) * PITCH + line + e], PITCH);\n\
                     (*sums).m{i} = coopMultiplyAdd(a{i}, b, (*sums).m{i});\n"
                )
            });
            let _ = write!(
                adds,
                "fill_{name}(base, first, end, line, {}u, lid);\n\
                 workgroupBarrier();\n\
                 for (var e = 0u; e < {LINES}u; e += 8u) {{\n\
                 let b = coopLoadT<Lines>(&piece[e * {pitch}u + left], {pitch}u);\n{products}}}\n\
                 workgroupBarrier();\n",
                piece * columns,
            );
            let each = each(&|down, i| store(down, i, pitch));
            let _ = write!(
                stores,
                "{each}workgroupBarrier();\n\
                 for (var t = 0u; t < {per}u; t++) {{\n\
                 let i = {first}u + t;\n\
                 own[i] = marked(piece[r * {pitch}u + lane + t * LANES], (*sums).marks >> vec2<u32>(i));\n}}\n\
                 workgroupBarrier();\n",
                per = columns / tile.lanes(),
                first = piece * columns / tile.lanes(),
            );
        }
        let place = place(rows, across);
        format!(
            "struct Sums_{name} {{ {members}marks: vec2<u32> }}\n\
             fn none_{name}() -> Sums_{name} {{\n\
             workgroupBarrier();\n\
             let zero = coopLoadT<Sum>(&nothing[0], 8u);\n\
             return Sums_{name}({zeros}vec2<u32>(0u));\n}}\n\
             fn fill_{name}(base: u32, first: u32, end: u32, line: u32, start: u32, lid: u32) {{\n\
             {body}}}\n\
             fn add_{name}(sums: ptr<function, Sums_{name}>, base: u32, first: u32, end: u32, \
             r: u32, lane: u32, lid: u32, subgroup: u32) {{\n{place}\
             for (var line = 0u; line < LINES; line += {LINES}u) {{\n{adds}}}\n\
             if (atomicLoad(&unfinished) != 0u) {{\n\
             for (var c = 0u; c < min(LINES, end - first); c++) {{\n\
             let bits = {weights}_bits(r, c);\n\
             if (bits != ABSENT) {{\n\
             for (var i = 0u; i < {sums}u; i++) {{\n\
             let column = lane + i * LANES;\n\
             if (column < {width}u) {{\n\
             let value = bitcast<u32>({name}(base + (first + c) * {width}u + column));\n\
             (*sums).marks |= mark(bits, value) << vec2<u32>(i);\n}}\n}}\n}}\n}}\n}}\n}}\n\
             fn columns_{name}(sums: ptr<function, Sums_{name}>, r: u32, lane: u32, subgroup: u32) \
             -> array<f32, {sums}> {{\n{place}\
             var own: array<f32, {sums}>;\n{stores}\
             return own;\n}}\n"
        )
    }

    /// `shrink_NAME`: see the plain one. Rarely is anything to be done, because what sums are taken against
    /// need not be the largest score.
    pub(super) fn shrink(&self, tile: &Tile, name: &str, width: usize) -> String {
        let Shape { columns, pieces, rows, across, pitch } = self.shape(tile, width);
        let size = tile.rows * columns;
        let mut steps = String::new();
        for piece in 0..pieces {
            let numbers = || (0..rows).map(|i| (8 * i, piece * rows + i));
            let stores: String = numbers().map(|(down, i)| store(down, i, pitch)).collect();
            let loads = numbers().map(|(down, i)| {
                format!(
                    "(*sums).m{i} = coopLoadT<Sum>(&piece[(top + {down}u) * {pitch}u + left], {pitch}u);\n"
                )
            });
            let loads: String = loads.collect();
            let _ = write!(
                steps,
                "{stores}workgroupBarrier();\n\
                 for (var e = lid; e < {size}u; e += WIDTH) {{\n\
                 piece[e / {columns}u * {pitch}u + e % {columns}u] *= shrinks[e / {columns}u];\n}}\n\
                 workgroupBarrier();\n{loads}workgroupBarrier();\n",
            );
        }
        let place = place(rows, across);
        format!(
            "var<workgroup> shrinks: array<f32, R>;\n\
             fn raised(most: f32, top: f32) -> f32 {{ return select(most, top, top > most + 8.0); }}\n\
             fn shrink_{name}(sums: ptr<function, Sums_{name}>, factor: f32, r: u32, lane: u32, \
             lid: u32, subgroup: u32) {{\n\
             if (lane == 0u) {{\n\
             shrinks[r] = factor;\n\
             if (factor != 1.0) {{ atomicStore(&shrunk, 1u); }}\n}}\n\
             // Nothing times an infinity is NaN.\n\
             if (factor == 0.0) {{ (*sums).marks |= (*sums).marks.yx; }}\n\
             let needed = workgroupUniformLoad(&shrunk);\n\
             if (lid == 0u) {{ atomicStore(&shrunk, 0u); }}\n\
             if (needed != 0u) {{\n{place}{steps}}}\n}}\n"
        )
    }

    fn shape(&self, tile: &Tile, width: usize) -> Shape {
        let (columns, pieces) = self.columns(tile.rows, width);
        let across = columns / 8;
        let rows = tile.rows / 8 * across / SUBGROUPS;
        Shape { columns, pieces, rows, across, pitch: columns + PAD }
    }
}

/// How sums are cut.
struct Shape {
    /// Columns of a piece, and pieces.
    columns: usize,
    pieces: usize,
    /// Matrices that a subgroup has of a piece, one below the other, and those that lie side by side.
    rows: usize,
    across: usize,
    pitch: usize,
}

/// Where a subgroup's matrices of a piece begin.
fn place(rows: usize, across: usize) -> String {
    format!(
        "let top = subgroup % {SUBGROUPS}u / {across}u * {}u;\n\
         let left = subgroup % {across}u * 8u;\n",
        8 * rows
    )
}

fn store(down: usize, i: usize, pitch: usize) -> String {
    format!("coopStoreT((*sums).m{i}, &piece[(top + {down}u) * {pitch}u + left], {pitch}u);\n")
}
