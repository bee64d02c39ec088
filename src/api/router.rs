//! The routes with their OpenAPI declarations, and what every request goes through.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, NotForContentType, Predicate as _};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt as _};
use utoipa_axum::routes;

use super::extract::BODY_LIMIT;
use super::problem::{Kind, Problem};
use super::state::ApiState;
use super::{assets, health, join, middleware, openapi, v1};

/// Every route, with its declaration.
pub(super) fn declared() -> OpenApiRouter<ApiState> {
    OpenApiRouter::with_openapi(openapi::base())
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(v1::projects::list, v1::projects::create))
        .routes(routes!(v1::projects::get))
        .routes(routes!(v1::clusters::list, v1::clusters::create))
        .routes(routes!(v1::clusters::get, v1::clusters::update, v1::clusters::delete))
        .routes(routes!(v1::events::of_cluster))
        .routes(routes!(v1::logs::read))
        .routes(routes!(v1::kubeconfigs::list, v1::kubeconfigs::create))
        .routes(routes!(v1::kubeconfigs::revoke))
        .routes(routes!(v1::join_tokens::list, v1::join_tokens::create))
        .routes(routes!(v1::join_tokens::revoke))
        .routes(routes!(v1::nodes::list))
        .routes(routes!(v1::nodes::get, v1::nodes::remove))
        .routes(routes!(v1::events::list))
        .routes(routes!(v1::jobs::list))
        .routes(routes!(v1::jobs::get))
        .routes(routes!(v1::jobs::retry))
        .routes(routes!(v1::settings::list))
        .routes(routes!(v1::settings::get, v1::settings::put))
        .routes(routes!(v1::users::list, v1::users::create))
        .routes(routes!(v1::users::get, v1::users::update, v1::users::delete))
        .routes(routes!(v1::sessions::create))
        .routes(routes!(v1::sessions::current, v1::sessions::end))
        .routes(routes!(v1::api_tokens::list, v1::api_tokens::create))
        .routes(routes!(v1::api_tokens::delete))
        .routes(routes!(v1::versions::list))
        .routes(routes!(join::script))
        .routes(routes!(join::join).layer(DefaultBodyLimit::max(join::BODY_LIMIT)))
        .routes(routes!(join::step).layer(DefaultBodyLimit::max(join::BODY_LIMIT)))
        .routes(routes!(join::fate).layer(DefaultBodyLimit::max(join::BODY_LIMIT)))
}

/// The whole API as a service. The listener puts a [`super::Peer`] into each request's extensions.
pub fn router(state: ApiState) -> Router {
    let (routes, _) = declared().split_for_parts();
    // Streams must not wait in a compressor; text/plain is what logs are sent as. Programs are sent with their length, and in parts.
    let compressible = DefaultPredicate::new()
        .and(NotForContentType::const_new("text/plain"))
        .and(NotForContentType::const_new("application/octet-stream"));
    routes
        .route("/api/openapi.json", get(document))
        .route("/assets/{*path}", get(assets::get))
        .fallback(|| async { Problem::new(Kind::NotFound, "there is no such path; GET /api/openapi.json lists the paths that there are") })
        .method_not_allowed_fallback(|| async {
            Problem::new(Kind::MethodNotAllowed, "this path has other methods; the header Allow lists them")
        })
        .layer(axum::middleware::from_fn_with_state(state.clone(), middleware::limit_time))
        .layer(CatchPanicLayer::custom(middleware::panicked))
        .layer(CompressionLayer::new().compress_when(compressible))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(axum::middleware::from_fn_with_state(state.clone(), middleware::observe))
        .with_state(state)
}

async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], openapi::document())
}
