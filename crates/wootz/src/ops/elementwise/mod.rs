//! Elementwise operations: tables of rows. A row says the name, the dtypes, the expression for the
//! CPU and for the GPU, the derivative and the range its cases draw from; everything else follows.

mod angles;
mod binary;
mod c_library;
mod classify;
mod clip;
mod compare;
mod complex;
mod convert;
mod integer;
mod invert;
mod logic;
mod nan_to_num;
mod pairs;
mod rounding;
mod stepped;
mod ternary;
#[cfg(test)]
mod tests;
mod trigonometry;
mod unary;

use std::ops::Range;

pub use angles::*;
pub use binary::*;
pub(crate) use c_library::*;
pub use classify::*;
pub use clip::*;
pub use compare::*;
pub use complex::*;
pub use convert::*;
pub use integer::*;
pub use invert::*;
pub use logic::*;
pub use nan_to_num::*;
pub use rounding::*;
use smallvec::SmallVec;
pub use stepped::*;
pub use ternary::*;
pub use trigonometry::*;
pub use unary::*;

use crate::array::{Arg, Array, DType, Meta, Scalar, Shape, broadcast_shapes};
use crate::cpu::CpuCall;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::eval::Program;
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Case, ElementKernel, Elementwise, Entry, Gradient, Metas, Op, OpRef};

/// One row of the tables.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) kernel: &'static ElementKernel,
    /// The rows for `float16` and `bfloat16`, where their kernels are not those of `float32`.
    pub(crate) narrow: Option<&'static [Row; 2]>,
    pub(crate) accepts: Accepts,
    pub(crate) output: Output,
    pub(crate) vjp: Vjp,
    /// Cases draw their inputs from here.
    pub(crate) range: Range<f64>,
    pub(crate) arguments: &'static [&'static str],
    /// Cases other than those every row has.
    pub(crate) cases: Option<fn() -> Vec<Case>>,
}

impl Row {
    /// Whether the first input is a truth value, whatever the dtype of the others.
    fn conditional(&self) -> bool {
        self.arguments[0] == "condition"
    }
}

/// Gradients of a row's inputs: from the inputs, the output and the output's gradient.
pub(crate) enum Vjp {
    /// One gradient per input, of the output's shape; the machinery sums over broadcast axes.
    /// Of fewer gradients the last belongs to the last input: constants come first.
    Rule(fn(inputs: &[Array], output: &Array, gradient: &Array) -> Result<Vec<Array>>),
    /// Piecewise constant.
    Zero,
}

/// What a row does with the dtypes of its inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Accepts {
    /// Computed in floats: integers and bools become `float32`.
    AsFloat,
    /// Any type.
    Any,
    /// Any type but bool.
    Numeric,
    /// Integers and bool.
    Integers,
    /// Integers; bools become `uint8`.
    Shift,
    /// Truth values: every type becomes `bool`.
    AsBool,
    /// Complex numbers only.
    Complex,
}

/// The dtype of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Output {
    /// That of the inputs.
    Same,
    /// `bool`.
    Bool,
    /// That of the inputs, but `float32` for complex ones.
    Real,
    /// `complex64`.
    Complex,
}

impl Output {
    fn of(self, input: DType) -> DType {
        match self {
            Output::Same => input,
            Output::Bool => DType::Bool,
            Output::Real => input.real(),
            Output::Complex => DType::C64,
        }
    }
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kernel.name)
    }
}

impl Op for Row {
    fn name(&self) -> &'static str {
        self.name
    }

    fn arguments(&self) -> &'static [&'static str] {
        self.arguments
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        crate::op::expect_inputs(self, inputs, self.arguments.len() - 1)?;
        let dtype = inputs[inputs.len() - 1].dtype;
        let mut shape = Shape::from_slice(inputs[0].shape());
        for (index, input) in inputs.iter().enumerate() {
            let expected = if self.conditional() && index == 0 { DType::Bool } else { dtype };
            crate::op::expect_dtype(self, inputs, index, expected)?;
            if index > 0 {
                shape = broadcast_shapes(self.name(), &shape, input.shape())?;
            }
        }
        if !self.accepts.allows(dtype) {
            let expected = self.accepts.describe();
            return Err(Error::dtype(self.name(), self.arguments[0], expected, dtype));
        }
        if dtype.is_complex() && (self.kernel.cpu)(dtype.class()).is_none() {
            return Err(Error::dtype(self.name(), self.arguments[0], "a real type", dtype));
        }
        let dtype = self.output.of(dtype);
        Ok(Metas::from_elem(Meta::new(self.name(), &shape, dtype)?, 1))
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        crate::eval::ELEMENTWISE_ALIASES
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let program =
            single_program(self, call.inputs.iter().map(|input| input.meta), call.output_meta(0));
        crate::cpu::fused::run(&program, call)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        let program = single_program(self, call.input_metas(), call.output_meta(0));
        crate::gpu::fused::run(&program, call)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let rule = match self.vjp {
            Vjp::Rule(rule) => rule,
            Vjp::Zero => return Ok(vec![None; inputs.len()]),
        };
        let [Some(gradient)] = cotangents else { return Ok(vec![None; inputs.len()]) };
        let complex = outputs.iter().chain(inputs.last()).all(|x| x.dtype().is_complex());
        // Rules multiply by derivatives; gradients of complex functions by their conjugates.
        let gradients = match complex {
            true => rule(inputs, &outputs[0], &conjugate(gradient)?)?
                .into_iter()
                .map(conjugate)
                .collect::<Result<Vec<_>>>()?,
            false => rule(inputs, &outputs[0], gradient)?,
        };
        let first = inputs.len() - gradients.len();
        let mut all = vec![None; first];
        for (input, gradient) in inputs[first..].iter().zip(gradients) {
            let gradient = sum_to_shape(&gradient, input.shape())?;
            all.push(Some(astype(&gradient, input.dtype())?));
        }
        Ok(all)
    }

    fn elementwise(&self) -> Option<Elementwise> {
        Some(Elementwise::Kernel(self.kernel))
    }
}

/// The program of one elementwise operation, for the explicit level.
pub(crate) fn single_program<'a>(
    op: &dyn Op,
    inputs: impl Iterator<Item = &'a Meta>,
    output: &Meta,
) -> Program {
    let inputs: SmallVec<[DType; 3]> = inputs.map(|meta| meta.dtype).collect();
    let kind = op.elementwise().unwrap_or(Elementwise::Cast);
    Program::single(kind, &inputs, output.dtype)
}

impl Accepts {
    fn allows(self, dtype: DType) -> bool {
        match self {
            Accepts::AsFloat => dtype.is_inexact(),
            Accepts::Any => true,
            Accepts::Complex => dtype.is_complex(),
            Accepts::Numeric => dtype != DType::Bool,
            Accepts::Integers => !dtype.is_inexact(),
            Accepts::Shift => dtype.is_integer(),
            Accepts::AsBool => dtype == DType::Bool,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Accepts::AsFloat => "a floating-point type",
            Accepts::Any => "any type",
            Accepts::Complex => "complex64",
            Accepts::Numeric => "a numeric type",
            Accepts::Integers => "an integer or bool type",
            Accepts::Shift => "an integer type",
            Accepts::AsBool => "bool",
        }
    }

    /// The dtype that inputs of `dtype` are converted to first.
    fn convert(self, dtype: DType) -> DType {
        match self {
            Accepts::AsFloat => dtype.to_float(),
            Accepts::Shift if dtype == DType::Bool => DType::U8,
            Accepts::AsBool => DType::Bool,
            _ => dtype,
        }
    }

    /// Dtypes that cases run in.
    fn case_dtypes(self) -> &'static [DType] {
        match self {
            Accepts::AsFloat => crate::op::FLOATS,
            Accepts::Any => crate::op::EVERY,
            Accepts::Complex => &[DType::C64],
            Accepts::Numeric => &crate::op::EVERY[1..],
            Accepts::Integers => &crate::op::EVERY[..9],
            Accepts::Shift => crate::op::INTEGERS,
            Accepts::AsBool => &crate::op::EVERY[..1],
        }
    }
}

/// Every row.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    let tables = [
        unary::ROWS,
        trigonometry::ROWS,
        angles::ROWS,
        clip::ROWS,
        invert::ROWS,
        nan_to_num::ROWS,
        stepped::ROWS,
        rounding::ROWS,
        classify::ROWS,
        binary::ROWS,
        c_library::ROWS,
        integer::ROWS,
        compare::ROWS,
        logic::ROWS,
        complex::ROWS,
        complex::JOIN,
        ternary::ROWS,
    ];
    tables.into_iter().flatten()
}

/// The entries of all rows.
pub(crate) fn entries() -> Vec<Entry> {
    let mut entries: Vec<Entry> = rows().map(row_entry).collect();
    entries.extend(convert::entries());
    entries
}

/// Cases of a row: its shape alone, broadcast, and across a tile's border.
fn row_entry(row: &'static Row) -> Entry {
    if let Some(cases) = row.cases {
        return Entry { name: row.name, cases: cases() };
    }
    let shapes: &[&[&[usize]]] = match row.arguments.len() {
        2 => &[&[&[3, 5]], &[&[1025]], &[&[]]],
        3 => &[&[&[3, 5], &[3, 5]], &[&[2, 1, 4], &[3, 1]], &[&[1025], &[]]],
        _ => &[&[&[3, 5], &[3, 5], &[3, 5]], &[&[2, 1], &[3, 1, 4], &[4]], &[&[1025], &[], &[1]]],
    };
    let cases = shapes.iter().map(move |shapes| {
        let gradient = match row.vjp {
            Vjp::Rule(_) => Gradient::Checked,
            Vjp::Zero => Gradient::Zero,
        };
        let case = Case::new(format!("{shapes:?}"), shapes, move |inputs| {
            let inputs: Vec<&Array> = inputs.iter().collect();
            Ok(vec![apply_kernel(row, &inputs)?])
        })
        .range(row.range.clone())
        .dtypes(row.accepts.case_dtypes())
        .gradient(gradient);
        if row.conditional() { case.fixed(0, DType::Bool, 0.0..2.0) } else { case }
    });
    Entry { name: row.name, cases: cases.collect() }
}

/// Applies a row to inputs that have the dtype it takes.
pub(crate) fn apply_kernel(row: &'static Row, inputs: &[&Array]) -> Result<Array> {
    let row = match (row.narrow, inputs.last().map(|input| input.dtype())) {
        (Some([row, _]), Some(DType::F16)) | (Some([_, row]), Some(DType::BF16)) => row,
        _ => row,
    };
    Array::apply(OpRef::Static(row), inputs)
}

/// Applies a row: weak scalars resolved, dtypes promoted.
pub(crate) fn apply_row<const N: usize>(row: &'static Row, arguments: [Arg; N]) -> Result<Array> {
    let inputs = resolve(row.name, arguments)?;
    let dtype = inputs.iter().map(Array::dtype).reduce(DType::promote).unwrap_or(DType::F32);
    let dtype = row.accepts.convert(dtype);
    let mut converted: SmallVec<[Array; 4]> = SmallVec::new();
    for input in &inputs {
        converted.push(astype(input, dtype)?);
    }
    apply_kernel(row, &converted.iter().collect::<SmallVec<[&Array; 4]>>())
}

/// Turns weak scalars into arrays of the dtype they take beside the other arguments. An integer that
/// this dtype cannot hold is an error.
pub(crate) fn resolve<const N: usize>(op: &'static str, arguments: [Arg; N]) -> Result<[Array; N]> {
    let arrays =
        || arguments.iter().filter_map(|a| if let Arg::Array(a) = a { Some(a) } else { None });
    let beside = arrays().map(Array::dtype).reduce(DType::promote).or_else(|| {
        // Only scalars: they decide among themselves.
        let scalars =
            arguments.iter().filter_map(|a| if let Arg::Scalar(s) = a { Some(s) } else { None });
        scalars.map(|scalar| scalar.default_dtype()).reduce(DType::promote)
    });
    let device = arrays().find(|array| array.rank() > 0).or_else(|| arrays().next());
    let device = device.map_or_else(Device::default_device, |array| array.device().clone());
    let dtype_of = |scalar: Scalar| scalar.dtype_beside(beside.unwrap_or(scalar.default_dtype()));
    for argument in &arguments {
        if let Arg::Scalar(scalar) = argument
            && !fits(*scalar, dtype_of(*scalar))
        {
            let expected = format!("a value that {} can hold", dtype_of(*scalar));
            return Err(Error::argument(op, "scalar", expected, scalar.as_i64()));
        }
    }
    Ok(arguments.map(|argument| match argument {
        Arg::Array(array) => array,
        Arg::Scalar(scalar) => convert::scalar(scalar, dtype_of(scalar), &device),
    }))
}

/// Whether an integer keeps its value in an integer dtype.
fn fits(scalar: Scalar, dtype: DType) -> bool {
    let Scalar::Int(value) = scalar else { return true };
    match dtype {
        DType::U8 => u8::try_from(value).is_ok(),
        DType::U16 => u16::try_from(value).is_ok(),
        DType::U32 => u32::try_from(value).is_ok(),
        // MLX wraps what is below zero.
        DType::I8 => i8::try_from(value).is_ok(),
        DType::I16 => i16::try_from(value).is_ok(),
        DType::I32 => i32::try_from(value).is_ok(),
        _ => true,
    }
}

/// Sums a gradient over the axes along which an input of `shape` was broadcast.
pub(crate) fn sum_to_shape(gradient: &Array, shape: &[usize]) -> Result<Array> {
    if gradient.shape() == shape {
        return Ok(gradient.clone());
    }
    let lead = gradient.rank() - shape.len();
    let axes: Vec<i64> = (0..gradient.rank())
        .filter(|&axis| axis < lead || (shape[axis - lead] == 1 && gradient.shape()[axis] != 1))
        .map(|axis| axis as i64)
        .collect();
    let summed = crate::ops::sum_keepdims(gradient, &axes)?;
    crate::ops::reshape(&astype(&summed, gradient.dtype())?, shape)
}

/// Defines rows with one input: the static row, the function and the method.
macro_rules! unary_rows {
    ($(
        $(#[$doc:meta])*
        $vis:vis $name:ident { accepts: $accepts:ident, output: $output:ident, range: $range:expr,
            $(example: $x:tt => $type:ident $y:tt,)?
            $(float: |$f:ident| $float:expr,)? $(int: |$i:ident| $int:expr,)?
            $(complex: |$c:ident| $complex:expr,)?
            wgsl: { $($class:ident : $wgsl:literal),* },
            vjp: $vjp:expr }
    )*) => {
        $crate::ops::elementwise::index_of!($($name),*);
        $(
            $(#[$doc])*
            $(
                #[doc = concat!("\n```\nlet x = wootz::Array::new(", stringify!($x), ")?;\n",
                    "let y = wootz::", stringify!($name), "(&x)?;\n",
                    "assert_eq!(y.to_vec::<", stringify!($type), ">()?, ", stringify!($y), ");\n",
                    "# Ok::<(), wootz::Error>(())\n```")]
            )?
            $vis fn $name(x: impl Into<$crate::array::Arg>) -> $crate::error::Result<$crate::array::Array> {
                $crate::ops::elementwise::apply_row(&ROWS[Index::$name as usize], [x.into()])
            }
        )*
        impl $crate::array::Array {
            $(
                #[doc = concat!("The function [`", stringify!($name), "`](crate::", stringify!($name), ").")]
                #[allow(dead_code)]
                $vis fn $name(&self) -> $crate::error::Result<$crate::array::Array> {
                    $name(self)
                }
            )*
        }
        $crate::ops::elementwise::table! { ["x", "output"]; $(
            $name { $accepts, $output, $range, [$($f => $float)?], [$($i => $int)?],
                complex [$($c => $complex)?],
                { $($class : $wgsl),* }, $vjp }
        )* }
    };
}
pub(crate) use unary_rows;

/// Defines rows with two inputs.
macro_rules! binary_rows {
    ($(
        $(#[$doc:meta])*
        $vis:vis $name:ident { accepts: $accepts:ident, output: $output:ident, range: $range:expr,
            $(example: $a:tt, $b:tt => $type:ident $y:tt,)?
            $(float: |$fa:ident, $fb:ident| $float:expr,)? $(int: |$ia:ident, $ib:ident| $int:expr,)?
            $(complex: |$ca:ident, $cb:ident| $complex:expr,)?
            wgsl: { $($class:ident : $wgsl:literal),* },
            vjp: $vjp:expr }
    )*) => {
        $crate::ops::elementwise::index_of!($($name),*);
        $(
            $(#[$doc])*
            $(
                #[doc = concat!("\n```\nlet a = wootz::Array::new(", stringify!($a), ")?;\n",
                    "let b = wootz::Array::new(", stringify!($b), ")?;\n",
                    "let y = wootz::", stringify!($name), "(&a, &b)?;\n",
                    "assert_eq!(y.to_vec::<", stringify!($type), ">()?, ", stringify!($y), ");\n",
                    "# Ok::<(), wootz::Error>(())\n```")]
            )?
            $vis fn $name(
                a: impl Into<$crate::array::Arg>,
                b: impl Into<$crate::array::Arg>,
            ) -> $crate::error::Result<$crate::array::Array> {
                $crate::ops::elementwise::apply_row(&ROWS[Index::$name as usize], [a.into(), b.into()])
            }
        )*
        impl $crate::array::Array {
            $(
                #[doc = concat!("The function [`", stringify!($name), "`](crate::", stringify!($name), ").")]
                #[allow(dead_code)]
                $vis fn $name(
                    &self,
                    b: impl Into<$crate::array::Arg>,
                ) -> $crate::error::Result<$crate::array::Array> {
                    $name(self, b)
                }
            )*
        }
        $crate::ops::elementwise::table! { ["a", "b", "output"]; $(
            $name { $accepts, $output, $range, [$($fa, $fb => $float)?], [$($ia, $ib => $int)?],
                complex [$($ca, $cb => $complex)?],
                { $($class : $wgsl),* }, $vjp }
        )* }
    };
}
pub(crate) use binary_rows;

/// The static rows of a table.
macro_rules! table {
    ($arguments:expr; $(
        $name:ident { $accepts:ident, $output:ident, $range:expr, $float:tt, $int:tt, $(complex $complex:tt,)?
            { $($class:ident : $wgsl:literal),* }, $vjp:expr $(, $cases:expr)? }
    )*) => {
        /// The rows of this table.
        pub(crate) static ROWS: &[$crate::ops::elementwise::Row] = &[
            $(
                $crate::ops::elementwise::Row {
                    name: stringify!($name),
                    kernel: &$crate::op::ElementKernel {
                        name: stringify!($name),
                        cpu: |class| $crate::ops::elementwise::tile_fn!(class, $output, $float, $int $(, complex $complex)?),
                        wgsl: |class| match class {
                            $($crate::ops::elementwise::class!($class) => Some($wgsl),)*
                            #[allow(unreachable_patterns)]
                            _ => None,
                        },
                        boolean: matches!(
                            $crate::ops::elementwise::Output::$output,
                            $crate::ops::elementwise::Output::Bool
                        ),
                        joined: |next, position| {
                            $crate::ops::elementwise::pairs::joined(stringify!($name), next.name, position)
                        },
                    },
                    accepts: $crate::ops::elementwise::Accepts::$accepts,
                    output: $crate::ops::elementwise::Output::$output,
                    vjp: $vjp,
                    range: $range,
                    arguments: &$arguments,
                    narrow: None,
                    cases: $crate::ops::elementwise::own_cases!($($cases)?),
                },
            )*
        ];
    };
}
pub(crate) use table;

/// A row's own cases, if it has any.
macro_rules! own_cases {
    () => {
        None
    };
    ($cases:expr) => {
        Some($cases)
    };
}
pub(crate) use own_cases;

/// Names for the places of a table's rows, distinct from the functions of the same names.
macro_rules! index_of {
    ($($name:ident),*) => {
        #[allow(non_camel_case_types)]
        enum Index { $($name),* }
    };
}
pub(crate) use index_of;

/// Patterns for the classes a WGSL expression is for.
macro_rules! class {
    (any) => {
        _
    };
    (float) => {
        $crate::array::Class::F32 | $crate::array::Class::F64
    };
    (int) => {
        $crate::array::Class::U32
            | $crate::array::Class::U64
            | $crate::array::Class::I32
            | $crate::array::Class::I64
    };
    (signed) => {
        $crate::array::Class::I32 | $crate::array::Class::I64
    };
    (unsigned) => {
        $crate::array::Class::U32 | $crate::array::Class::U64
    };
    (i32) => {
        $crate::array::Class::I32
    };
    (u32) => {
        $crate::array::Class::U32
    };
    (i64) => {
        $crate::array::Class::I64
    };
    (u64) => {
        $crate::array::Class::U64
    };
    (complex) => {
        $crate::array::Class::C64
    };
}
pub(crate) use class;

/// The tile function of a class from the row's expressions, which are written once for `f32` and
/// `f64`, once for the four integer types and once for complex numbers.
macro_rules! tile_fn {
    ($class:expr, $output:ident, [$($($f:ident),+ => $float:expr)?], [$($($i:ident),+ => $int:expr)?]
        $(, complex [$($($c:ident),+ => $complex:expr)?])?) => {{
        #[allow(unused_imports)]
        use $crate::cpu::simd::{Complex, Integer, Real};
        match $class {
            $(
                $crate::array::Class::F32 => Some($crate::ops::elementwise::tile_loop!(f32, $output, $($f),+ => $float)),
                $crate::array::Class::F64 => Some($crate::ops::elementwise::tile_loop!(f64, $output, $($f),+ => $float)),
            )?
            $(
                $crate::array::Class::U32 => Some($crate::ops::elementwise::tile_loop!(u32, $output, $($i),+ => $int)),
                $crate::array::Class::U64 => Some($crate::ops::elementwise::tile_loop!(u64, $output, $($i),+ => $int)),
                $crate::array::Class::I32 => Some($crate::ops::elementwise::tile_loop!(i32, $output, $($i),+ => $int)),
                $crate::array::Class::I64 => Some($crate::ops::elementwise::tile_loop!(i64, $output, $($i),+ => $int)),
            )?
            $($(
                $crate::array::Class::C64 => Some($crate::ops::elementwise::tile_loop!(
                    @loop num_complex::Complex32, $crate::ops::elementwise::complex_output!($output),
                    ($($c),+), $crate::ops::elementwise::complex_value!($output, $complex))),
            )?)?
            #[allow(unreachable_patterns)]
            _ => None,
        }
    }};
}
pub(crate) use tile_fn;

/// What a tile of results of complex numbers holds.
macro_rules! complex_output {
    (Same) => {
        num_complex::Complex32
    };
    (Bool) => {
        u32
    };
    (Real) => {
        f32
    };
}
pub(crate) use complex_output;

/// A result of complex numbers as it is stored.
macro_rules! complex_value {
    (Bool, $value:expr) => {
        ($value) as u32
    };
    ($output:ident, $value:expr) => {
        $value
    };
}
pub(crate) use complex_value;

/// A vectorised loop over tiles.
macro_rules! tile_loop {
    ($type:ty, Same, $($argument:ident),+ => $body:expr) => {
        $crate::ops::elementwise::tile_loop!(@loop $type, $type, ($($argument),+), $body)
    };
    ($type:ty, Real, $($argument:ident),+ => $body:expr) => {
        $crate::ops::elementwise::tile_loop!(@loop $type, $type, ($($argument),+), $body)
    };
    ($type:ty, Complex, $($argument:ident),+ => $body:expr) => {
        $crate::ops::elementwise::tile_loop!(@loop $type, num_complex::Complex32, ($($argument),+), $body)
    };
    ($type:ty, Bool, $($argument:ident),+ => $body:expr) => {
        $crate::ops::elementwise::tile_loop!(@loop $type, u32, ($($argument),+), ($body) as u32)
    };
    (@constant ($a:ident), $out:ident, $body:expr) => {};
    // Plain loops for the two common cases: beside a constant, which is one load less, and whole
    // tiles. What is left is a constant on the left.
    (@constant ($a:ident, $b:ident), $out:ident, $body:expr) => {
        if $a.len() == $out.len() && $b.len() < $out.len() {
            let $b = $b[0];
            for (out, &$a) in $out.iter_mut().zip($a) {
                *out = $body;
            }
            return;
        }
        if $a.len() == $out.len() && $b.len() == $out.len() {
            for (out, (&$a, &$b)) in $out.iter_mut().zip($a.iter().zip($b)) {
                *out = $body;
            }
            return;
        }
    };
    (@constant ($($argument:ident),+), $out:ident, $body:expr) => {};
    (@loop $type:ty, $out:ty, ($($argument:ident),+), $body:expr) => {
        |args: &[&[u8]], out: &mut [u8]| {
            // A struct and not a closure: only its method is sure to be inlined and vectorised.
            struct Loop<'a> {
                $($argument: &'a [$type],)+
                out: &'a mut [$out],
            }
            impl pulp::WithSimd for Loop<'_> {
                type Output = ();
                #[inline(always)]
                fn with_simd<S: pulp::Simd>(self, _: S) {
                    let Loop { $($argument,)+ out } = self;
                    $crate::ops::elementwise::tile_loop!(@constant ($($argument),+), out, $body);
                    let blocks = out.as_chunks_mut::<{ $crate::op::BLOCK }>().0;
                    for (index, out) in blocks.iter_mut().enumerate() {
                        $(let $argument = $crate::op::block($argument, index);)+
                        for i in 0..$crate::op::BLOCK {
                            $(let $argument = $argument[i];)+
                            out[i] = $body;
                        }
                    }
                }
            }
            let mut args = args.iter();
            $(let $argument = bytemuck::cast_slice(args.next().map_or(&[][..], |bytes| bytes));)+
            let out = bytemuck::cast_slice_mut(out);
            <$type as $crate::cpu::simd::Vectorised>::run(Loop { $($argument,)+ out });
        }
    };
}
pub(crate) use tile_loop;
