//! Quantized weights on the GPU: kernels decode 32 weights at a time by the format's snippet.

use std::sync::Arc;

use crate::array::{DType, Meta};
use crate::error::{Error, Result};
use crate::gpu::{Bind, GpuBuffer, GpuCall, Kernel, grid, packed};
use crate::ops::indexing::along_axis::check_on_gpu;
use crate::ops::indexing::offsets::place_function;
use crate::ops::indexing::raw::status;
use crate::quant::{Affine, FloatGroups, Scheme};

/// Units of 32 weights that a workgroup decodes.
const UNITS: usize = 64;
/// Rows of `x` up to which products are done row by row.
const FEW: usize = 8;
/// Products with chosen matrices that are done one by one: the experts of one token are all different.
const FEW_PRODUCTS: usize = 16;

pub(super) fn dequantize(call: &mut GpuCall<'_>, scheme: Scheme) -> Result<()> {
    let meta = call.output_meta(0);
    let (dtype, count) = (meta.dtype, meta.size());
    if count == 0 {
        return Ok(());
    }
    let weights = Weights::new(call, scheme, 0)?;
    let params = [&weights.offsets[..], &[word(count)?]].concat();
    call.launch(&Kernel {
        variant: format!("{scheme}/{dtype}"),
        source: &|| {
            let product = packed::round(dtype, "value");
            let narrow = match packed::per_word(dtype) {
                1 => "values[at]".to_string(),
                _ => format!(
                    "{} | ({} << 16u)",
                    packed::narrow(dtype, "values[at]"),
                    packed::narrow(dtype, "values[at + 1u]")
                ),
            };
            let per_word = packed::per_word(dtype);
            [
                packed::PACKING.to_string(),
                weights.text(0, &product),
                packed::word_writer("out", weights.count(), dtype),
                format!("const PER_WORD = {per_word}u;\n"),
                include_str!("dequantize.wgsl").replace("STORED", &narrow),
            ]
            .concat()
        },
        bindings: &[weights.bindings(), vec![Bind::Output(0)]].concat(),
        params: &params,
        groups: grid(count.div_ceil(32 * UNITS)),
    })
}

pub(super) fn quantize(call: &mut GpuCall<'_>, scheme: Scheme) -> Result<()> {
    let w = call.meta(0);
    let Some(group) = scheme.group_size() else {
        return Err(call.not_on_device("blocks are encoded on the CPU"));
    };
    let groups = w.size() / group;
    if groups == 0 {
        return Ok(());
    }
    let dtype = w.dtype;
    let mut bindings = vec![Bind::Input(0), Bind::Output(0), Bind::Output(1)];
    if scheme.arrays() == 3 {
        bindings.push(Bind::Output(2));
    }
    call.launch(&Kernel {
        variant: format!("{scheme}/{dtype}"),
        source: &|| {
            let stored = if scheme.arrays() == 3 { dtype } else { DType::U8 };
            let mut text = [
                packed::PACKING.to_string(),
                packed::reader("w", 0, dtype),
                packed::word_writer("codes", 1, DType::U32),
                packed::writer("scales", 2, stored),
                format!("const GROUP = {group}u;\nconst BITS = {}u;\n", scheme.bits().unwrap_or(0)),
            ]
            .concat();
            if scheme.arrays() == 3 {
                text += &packed::writer("biases", 3, dtype);
                text += &constant("REACH", Affine::reach(dtype));
                text + include_str!("quantize.wgsl") + include_str!("quantize_affine.wgsl")
            } else {
                text += &format!("const NV = {};\n", scheme == Scheme::Nvfp4);
                text += &constant("LARGEST", scheme.floats().map_or(0.0, FloatGroups::largest));
                text += include_str!("../../quant/small_float.wgsl");
                text + include_str!("quantize.wgsl") + include_str!("quantize_float.wgsl")
            }
        },
        bindings: &bindings,
        params: &[word(w.layout.offset)?, word(groups)?],
        groups: grid(groups.div_ceil(UNITS)),
    })
}

/// A number with all its digits.
fn constant(name: &str, value: f32) -> String {
    format!("const {name} = {value:e}f;\n")
}

pub(super) fn matmul(call: &mut GpuCall<'_>, scheme: Scheme, transpose: bool) -> Result<()> {
    let each = (call.meta(1).shape()[0] > 1) as u32;
    let indices = Indices {
        text: format!(
            "fn x_matrix(batch: u32) -> u32 {{ return batch; }}\n\
             fn w_matrix(batch: u32) -> u32 {{ return batch * {each}u; }}\n\
             fn running() -> bool {{ return true; }}\n"
        ),
        key: format!("{each}"),
        params: vec![0; 5],
        bindings: Vec::new(),
        status: false,
    };
    let Some(sizes) = Product::new(call)? else { return Ok(()) };
    if transpose && sizes.m <= FEW {
        return gemv(call, scheme, sizes, &indices);
    }
    let way = Tiles::of(call, [sizes.m, sizes.n]);
    let [rows, columns] = way.sides();
    let groups = sizes.batch * sizes.m.div_ceil(rows) * sizes.n.div_ceil(columns);
    let text = include_str!("batched.wgsl");
    tiles(call, scheme, transpose, sizes, &indices, (way, groups, text))
}

/// Products with matrices that indices choose: one by one if they are few, else those of each matrix
/// together, so that its weights are decoded once for a tile of their rows.
pub(super) fn gather(call: &mut GpuCall<'_>, scheme: Scheme, transpose: bool) -> Result<()> {
    let first = 1 + scheme.arrays();
    let (lefts, experts) = (call.meta(0).shape()[0], call.meta(1).shape()[0]);
    let (lhs, rhs) = (call.meta(first), call.meta(first + 1));
    let count = lhs.size();
    if count == 0 {
        return Ok(());
    }
    check_on_gpu(call, first, lefts, false)?;
    check_on_gpu(call, first + 1, experts, false)?;
    let params = vec![
        word(lhs.layout.offset)?,
        word(rhs.layout.offset)?,
        word(lefts)?,
        word(experts)?,
        word(count)?,
    ];
    let Some(sizes) = Product::new(call)? else { return Ok(()) };
    let binding = first + 1 + !scheme.table().is_empty() as usize;
    if one_by_one(transpose, sizes.m, count) {
        let text = [
            packed::reader("lhs", binding, lhs.dtype),
            packed::reader("rhs", binding + 1, lhs.dtype),
            status(binding + 2),
            place_function(lhs.dtype, false),
            "fn x_matrix(batch: u32) -> u32 { return place(lhs(p.lhs_at + batch), p.lefts).x; }\n\
             fn w_matrix(batch: u32) -> u32 { return place(rhs(p.rhs_at + batch), p.experts).x; }\n\
             fn running() -> bool { return !failed(); }\n"
                .to_string(),
        ];
        let indices = Indices {
            text: text.concat(),
            key: format!("gather {}", lhs.dtype),
            params,
            bindings: vec![Bind::Input(first), Bind::Input(first + 1)],
            status: true,
        };
        return gemv(call, scheme, sizes, &indices);
    }
    sort(call, first, lefts, experts)?;
    let groups = include_str!("../matmul/gather/groups.wgsl");
    let indices = Indices {
        // What decodes weights has a `product` of its own.
        text: (groups.replace("@binding(3)", &format!("@binding({binding})")))
            .replace("fn product(", "fn number("),
        key: "sorted".into(),
        params,
        bindings: vec![Bind::ReadScratch],
        status: false,
    };
    // As many rows as one would find with a matrix.
    let way = Tiles::of(call, [count * sizes.m / experts, sizes.n]);
    let [rows, columns] = way.sides();
    // A matrix has at most one tile that is not full.
    let groups = (count * sizes.m / rows + experts) * sizes.n.div_ceil(columns);
    let text = include_str!("sorted.wgsl");
    tiles(call, scheme, transpose, sizes, &indices, (way, groups, text))
}

fn one_by_one(transpose: bool, m: usize, products: usize) -> bool {
    transpose && m <= FEW && products <= FEW_PRODUCTS
}

/// Bytes that say which products belong together, where that is asked.
pub(super) fn gather_scratch(scheme: Scheme, transpose: bool, inputs: &[&Meta]) -> usize {
    let first = 1 + scheme.arrays();
    let (Some(&[_, m, _]), Some(&[experts, ..]), Some(indices)) =
        (inputs.first().map(|x| x.shape()), inputs.get(1).map(|w| w.shape()), inputs.get(first))
    else {
        return 0;
    };
    match indices.size() {
        0 => 0,
        count if one_by_one(transpose, m, count) => 0,
        count => 4 * (experts + 1 + 3 * count),
    }
}

/// Writes to the scratch memory which products belong together, in the order of their matrices: see
/// `groups.wgsl`.
fn sort(call: &mut GpuCall<'_>, first: usize, lefts: usize, experts: usize) -> Result<()> {
    let (lhs, rhs) = (call.meta(first), call.meta(first + 1));
    let (count, dtype) = (lhs.size(), lhs.dtype);
    call.launch_with_status(&Kernel {
        variant: format!("group {dtype}"),
        source: &|| {
            [
                packed::PACKING,
                &packed::reader("lhs", 0, dtype),
                &packed::reader("rhs", 1, dtype),
                &status(3),
                &place_function(dtype, false),
                include_str!("../matmul/gather/group.wgsl"),
            ]
            .concat()
        },
        bindings: &[Bind::Input(first), Bind::Input(first + 1), Bind::Scratch],
        params: &[
            word(count)?,
            word(experts)?,
            word(lefts)?,
            word(lhs.layout.offset)?,
            word(rhs.layout.offset)?,
        ],
        groups: grid((experts + 1).div_ceil(256)),
    })
}

/// Which matrices a product takes.
struct Indices {
    /// Functions that tell them, and what they read, which is bound last.
    text: String,
    key: String,
    params: Vec<u32>,
    bindings: Vec<Bind<'static>>,
    /// Whether the status words are bound as well.
    status: bool,
}

/// The sizes of products.
#[derive(Clone, Copy)]
struct Product {
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
}

impl Product {
    /// None if there is nothing to compute.
    fn new(call: &GpuCall<'_>) -> Result<Option<Product>> {
        let (x, output) = (call.meta(0), call.output_meta(0));
        let (&[_, m, k], &[batch, _, n]) = (x.shape(), output.shape()) else {
            return Err(Error::shape("quantized_matmul", "x", "three axes", x.shape()));
        };
        Ok((output.size() > 0).then_some(Product { batch, m, n, k }))
    }
}

/// How workgroups compute tiles of products.
#[derive(Clone, Copy)]
enum Tiles {
    Plain,
    /// Of cooperative matrices.
    Cooperative,
}

impl Tiles {
    fn of(call: &GpuCall<'_>, [m, n]: [usize; 2]) -> Tiles {
        let enough = m > 32 && n > 32;
        match enough && call.gpu().has_cooperative_matrix() {
            true => Tiles::Cooperative,
            false => Tiles::Plain,
        }
    }

    /// Rows and columns of a tile.
    fn sides(self) -> [usize; 2] {
        match self {
            Tiles::Plain => [32, 64],
            Tiles::Cooperative => [64, 64],
        }
    }
}

/// Rows of weights times few rows of `x`.
fn gemv(call: &mut GpuCall<'_>, scheme: Scheme, sizes: Product, indices: &Indices) -> Result<()> {
    let way = RowSums::of(call, sizes.m, sizes.k);
    let source = || way.constants() + UNITS_LOOP + &way.text(include_str!("gemv.wgsl"));
    let groups = sizes.batch * sizes.n.div_ceil(way.rows);
    let variant = format!("gemv/{}", way.key());
    launch(call, scheme, true, sizes, indices, Text { variant, source: &source, groups, head: "" })
}

/// How products of rows are cut where there are few rows of `x`.
pub(in crate::ops) struct RowSums {
    /// Rows of `x` whose sums a thread has, rounded up to a power of two.
    x: usize,
    /// Rows of weights of a workgroup.
    pub(in crate::ops) rows: usize,
    threads: usize,
    subgroups: bool,
}

/// Adds up the products of units of 32 weights.
pub(in crate::ops) const UNITS_LOOP: &str = include_str!("units.wgsl");

impl RowSums {
    /// For `m` rows of `k` numbers.
    pub(in crate::ops) fn of(call: &GpuCall<'_>, m: usize, k: usize) -> RowSums {
        let x = m.next_power_of_two();
        let rows = if x > 4 { 2 } else { 4 };
        let threads = if k <= 32 * 32 { 32 } else { 64 };
        RowSums { x, rows, threads, subgroups: call.gpu().has_subgroups() }
    }

    /// What texts depend on.
    pub(in crate::ops) fn key(&self) -> String {
        format!("{}/{}/{}", self.x, self.threads, self.subgroups)
    }

    pub(in crate::ops) fn constants(&self) -> String {
        let RowSums { x, rows, threads, subgroups } = self;
        let added = if *subgroups { "subgroupAdd(sum)" } else { "sum" };
        format!(
            "const X = {x}u;\nconst ROWS = {rows}u;\nconst THREADS = {threads}u;\n\
             const SUMS = ROWS * X;\nfn added(sum: f32) -> f32 {{ return {added}; }}\n"
        )
    }

    /// A kernel with what it asks of subgroups. Without them every thread is one.
    pub(in crate::ops) fn text(&self, text: &str) -> String {
        let [builtins, lane, subgroup, count] = match self.subgroups {
            true => [
                ",\n@builtin(subgroup_id) subgroup: u32, \
                 @builtin(subgroup_invocation_id) lane: u32, \
                 @builtin(num_subgroups) subgroups: u32",
                "lane",
                "subgroup",
                "subgroups",
            ],
            false => ["", "0u", "lid", "THREADS"],
        };
        let text = text.replace("/* BUILTINS */", builtins).replace("SUBGROUPS", count);
        text.replace("SUBGROUP", subgroup).replace("LANE", lane)
    }
}

/// Tiles of products: how, how many, and the functions that tell which.
fn tiles(
    call: &mut GpuCall<'_>,
    scheme: Scheme,
    transpose: bool,
    sizes: Product,
    indices: &Indices,
    (way, groups, places): (Tiles, usize, &str),
) -> Result<()> {
    let (variant, head, text) = match way {
        Tiles::Plain => ("tiled", "", include_str!("tiled.wgsl")),
        Tiles::Cooperative => {
            let body = concat!(
                include_str!("cooperative.wgsl"),
                include_str!("../matmul/cooperative.wgsl")
            );
            ("cooperative", "enable wgpu_cooperative_matrix;\n", body)
        }
    };
    let source = || [places, include_str!("factors.wgsl"), text].concat();
    let variant = variant.to_string();
    launch(call, scheme, transpose, sizes, indices, Text { variant, source: &source, groups, head })
}

/// One of the ways to multiply.
struct Text<'a> {
    variant: String,
    /// The kernel, without what all have in common.
    source: &'a dyn Fn() -> String,
    groups: usize,
    /// Extensions of the language.
    head: &'a str,
}

fn launch(
    call: &mut GpuCall<'_>,
    scheme: Scheme,
    transpose: bool,
    sizes: Product,
    indices: &Indices,
    text: Text<'_>,
) -> Result<()> {
    let Product { m, n, k, .. } = sizes;
    let (x, dtype) = (call.meta(0), call.output_meta(0).dtype);
    let weights = Weights::new(call, scheme, 1)?;
    let mut params = weights.offsets.to_vec();
    for value in [x.layout.offset, m, n, k, text.groups] {
        params.push(word(value)?);
    }
    params.extend(&indices.params);
    // Binding 0 is `x`; the output follows the weights.
    let out = 1 + weights.count();
    let kernel = Kernel {
        variant: format!(
            "{}/{scheme}/{dtype}/{transpose}/{}/{}",
            text.variant, weights.key, indices.key
        ),
        source: &|| {
            [
                text.head.to_string(),
                packed::PACKING.to_string(),
                weights.text(1, "value"),
                packed::reader("x", 0, dtype),
                packed::writer("out", out, dtype),
                include_str!("product.wgsl").into(),
                indices.text.clone(),
                format!("const TRANSPOSE = {transpose};\n"),
                (text.source)(),
            ]
            .concat()
        },
        bindings: &[
            &[Bind::Input(0)],
            &weights.bindings()[..],
            &[Bind::Output(0)],
            &indices.bindings,
        ]
        .concat(),
        params: &params,
        groups: grid(text.groups),
    };
    match indices.status {
        true => call.launch_with_status(&kernel),
        false => call.launch(&kernel),
    }
}

/// The arrays of quantized weights, as a kernel sees them.
pub(in crate::ops) struct Weights {
    scheme: Scheme,
    /// The dtype of scales and biases.
    dtype: DType,
    /// The input of the codes.
    first: usize,
    /// What decoding looks up.
    table: Option<Arc<GpuBuffer>>,
    pub(in crate::ops) offsets: [u32; 3],
    key: String,
}

impl Weights {
    /// The weights that a call has from input `first` on.
    pub(in crate::ops) fn new(
        call: &mut GpuCall<'_>,
        scheme: Scheme,
        first: usize,
    ) -> Result<Weights> {
        let arrays = scheme.arrays();
        let metas = [0, 1, 2].map(|index: usize| call.meta(first + index.min(arrays - 1)));
        let table = match scheme.table() {
            [] => None,
            words => Some(call.gpu().constant(bytemuck::cast_slice(words))?),
        };
        let [first_offset, second, third] = metas.map(|meta| word(meta.layout.offset));
        let offsets = [first_offset?, second?, third?];
        Ok(Weights {
            scheme,
            dtype: metas[1].dtype,
            first,
            table,
            offsets,
            key: metas[1].dtype.to_string(),
        })
    }

    /// What their text depends on.
    pub(in crate::ops) fn whole_key(&self) -> String {
        format!("{}.{}", self.scheme, self.key)
    }

    /// How many there are.
    pub(in crate::ops) fn count(&self) -> usize {
        self.scheme.arrays() + self.table.is_some() as usize
    }

    pub(in crate::ops) fn bindings(&self) -> Vec<Bind<'_>> {
        let inputs = self.first..self.first + self.scheme.arrays();
        inputs.map(Bind::Input).chain(self.table.as_ref().map(Bind::Read)).collect()
    }

    /// The function `row_weights` on arrays that are bound from `binding` on; `product` is what becomes of a
    /// scale times a code, called `value`.
    pub(in crate::ops) fn text(&self, binding: usize, product: &str) -> String {
        let mut text = format!(
            "@group(0) @binding({binding}) var<storage, read> w_data: array<u32>;\n\
             fn product(value: f32) -> f32 {{ return {product}; }}\n"
        );
        for (index, name) in ["scales", "biases"].iter().enumerate().take(self.scheme.arrays() - 1)
        {
            text += &packed::reader(name, binding + 1 + index, self.dtype);
        }
        if self.table.is_some() {
            let binding = binding + self.scheme.arrays();
            text +=
                &format!("@group(0) @binding({binding}) var<storage, read> w_table: array<u32>;\n");
        }
        text + &self.scheme.wgsl()
    }
}

pub(in crate::ops) fn word(value: usize) -> Result<u32> {
    u32::try_from(value).map_err(|_| Error::SizeOverflow {
        op: "quantized_matmul",
        argument: "inputs".into(),
        got: value.to_string(),
        limit: u32::MAX as u64,
    })
}
