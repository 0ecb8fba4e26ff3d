pub mod log { 
 #[allow(unused_macros)]
 macro_rules! error { ($($t:tt)*) => { eprintln!($($t)*) } } macro_rules! warn_ { ($($t:tt)*) => { eprintln!($($t)*) } } pub(crate) use error; pub(crate) use warn_ as warn; }
pub mod access { pub struct AccessLog; }
pub mod counters { #[derive(Default)] pub struct Counters; impl Counters { pub fn refused_busy(&self){} pub fn refused_request(&self){} } }
