//! How to use it, page by page, and why it is safe.
//!
//! | page | for whom |
//! |---|---|
//! | `limits` | which limits for which upstream; the guard |
//! | `waiting` | how long calls wait, deadlines, who goes first |
//! | `responses` | what is concluded from a response, for how long, and what ends it |
//! | `what_happens` | calls, refusals, Redis, processes and configuration, row by row |
//! | `without_store` | what calls do while the store cannot answer |
//! | `clients` | without the middleware, and beside other middlewares |
//! | `crawlers` | many hosts, each at its own pace |
//! | `payments` | queue consumers; what is sent again, and by whom |
//! | `testing` | tests of your own code: paused time, strict upstreams, faults |
//! | `deploying` | what Redis needs and keeps, permissions, upgrades, the first day |
//! | `watching` | who waits and why, what is counted, what is traced |
//! | `trouble` | when it goes wrong: symptom, cause, remedy |
//! | `coming_from` | governor, reqwest-ratelimit, bottleneck |
//! | `measured` | what was measured, and with which command |
//! | `how_it_works` | the rule, why it holds, and what is not promised |

#[doc = include_str!("../guide/limits.md")]
pub mod limits {}

#[doc = include_str!("../guide/waiting.md")]
pub mod waiting {}

#[doc = include_str!("../guide/responses.md")]
pub mod responses {}

#[doc = include_str!("../guide/crawlers.md")]
pub mod crawlers {}

#[doc = include_str!("../guide/payments.md")]
pub mod payments {}

#[cfg(feature = "testing")]
#[doc = include_str!("../guide/testing.md")]
pub mod testing {}

#[cfg(feature = "redis")]
#[doc = include_str!("../guide/trouble.md")]
pub mod trouble {}

#[doc = include_str!("../guide/coming_from.md")]
pub mod coming_from {}

#[doc = include_str!("../guide/how_it_works.md")]
pub mod how_it_works {}

#[doc = include_str!("../guide/what_happens.md")]
pub mod what_happens {}

#[doc = include_str!("../guide/without_store.md")]
pub mod without_store {}

#[cfg(feature = "tower")]
#[doc = include_str!("../guide/clients.md")]
pub mod clients {}

#[doc = include_str!("../guide/measured.md")]
pub mod measured {}

// Its picture is no file beside the page here: the first to say where it is is believed.
#[doc = concat!("[screen]: ", include_str!("../guide/watch.uri"), "\n\n")]
#[doc = include_str!("../guide/watching.md")]
pub mod watching {}

#[doc = include_str!("../guide/deploying.md")]
pub mod deploying {}
