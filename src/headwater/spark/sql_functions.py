"""The functions that the SQL of a model may call, by Spark's names: an allow list.

It is Spark 4.1's list of built-in functions without those that reach Java, files, the environment or the session
(`REFUSED_FUNCTIONS`). A name that Spark adds later is refused until it is added here. Both checks of a model's SQL use
the list: that of the text (`runtime/model_sql_allowed.py`) and that of Spark's plan (`spark/sql_plan.py`).
"""

from __future__ import annotations

_ALLOWED_FUNCTIONS_WORDS = """
abs acos acosh add_months aes_decrypt aes_encrypt aggregate and any any_value approx_count_distinct
approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate array array_agg
array_append array_compact array_contains array_distinct array_except array_insert array_intersect array_join
array_max array_min array_position array_prepend array_remove array_repeat array_size array_sort array_union
arrays_overlap arrays_zip ascii asin asinh assert_true atan atan2 atanh avg base64 between bigint bin binary bit_and
bit_count bit_get bit_length bit_or bit_xor bitmap_and_agg bitmap_bit_position bitmap_bucket_number
bitmap_construct_agg bitmap_count bitmap_or_agg bool_and bool_or boolean bround btrim cardinality cast cbrt ceil
ceiling char char_length character_length chr coalesce collate collation collect_list collect_set concat concat_ws
contains conv convert_timezone corr cos cosh cot count count_if count_min_sketch covar_pop covar_samp crc32 csc
cume_dist curdate current_date current_time current_timestamp current_timezone date date_add date_diff date_format
date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek
dayofyear decimal decode degrees dense_rank div double e element_at elt encode endswith equal_null every exists exp
explode explode_outer expm1 extract factorial filter find_in_set first first_value flatten float floor forall
format_number format_string from_csv from_json from_unixtime from_utc_timestamp get get_json_object getbit greatest
grouping grouping_id hash hex histogram_numeric hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg hour
hypot if ifnull ilike in initcap inline inline_outer instr int is_valid_utf8 is_variant_null isnan isnotnull isnull
json_array_length json_object_keys json_tuple kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kll_sketch_get_n_bigint kll_sketch_get_n_double
kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double kll_sketch_get_quantile_float
kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float kll_sketch_merge_bigint
kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint kll_sketch_to_string_double
kll_sketch_to_string_float kurtosis lag last last_day last_value lcase lead least left len length levenshtein like
listagg ln localtimestamp locate log log10 log1p log2 lower lpad ltrim luhn_check make_date make_dt_interval
make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval map
map_concat map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with
mask max max_by md5 mean median min min_by minute mod mode monotonically_increasing_id month monthname
months_between named_struct nanvl negative next_day not now nth_value ntile nullif nullifzero nvl nvl2 octet_length
or overlay parse_json parse_url percent_rank percentile percentile_approx percentile_cont percentile_disc pi pmod
posexplode posexplode_outer position positive pow power printf quarter quote radians raise_error rand randn random
randstr range rank reduce regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like
regexp_replace regexp_substr regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy
regr_syy repeat replace reverse right rint rlike round row_number rpad rtrim schema_of_csv schema_of_json
schema_of_variant schema_of_variant_agg sec second sentences sequence session_window sha sha1 sha2 shiftleft
shiftright shiftrightunsigned shuffle sign signum sin sinh size skewness slice smallint some sort_array soundex
space spark_partition_id split split_part sqrt st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid stack
startswith std stddev stddev_pop stddev_samp str_to_map string string_agg struct substr substring substring_index
sum tan tanh theta_difference theta_intersection theta_intersection_agg theta_sketch_agg theta_sketch_estimate
theta_union theta_union_agg time time_diff time_trunc timestamp timestamp_micros timestamp_millis timestamp_seconds
tinyint to_binary to_char to_csv to_date to_json to_number to_time to_timestamp to_timestamp_ltz to_timestamp_ntz
to_unix_timestamp to_utc_timestamp to_varchar to_variant_object to_xml transform transform_keys transform_values
translate trim trunc try_add try_aes_decrypt try_avg try_divide try_element_at try_make_interval try_make_timestamp
try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply try_parse_json try_parse_url try_subtract try_sum
try_to_binary try_to_date try_to_number try_to_time try_to_timestamp try_url_decode try_validate_utf8
try_variant_get typeof ucase unbase64 unhex uniform unix_date unix_micros unix_millis unix_seconds unix_timestamp
upper url_decode url_encode uuid validate_utf8 var_pop var_samp variance variant_explode variant_explode_outer
variant_get weekday weekofyear when width_bucket window window_time xxhash64 year zeroifnull zip_with
"""
ALLOWED_FUNCTIONS = frozenset(_ALLOWED_FUNCTIONS_WORDS.split())
"""Scalar, aggregate, window, generator and table functions. Functions whose results differ between runs (`rand`,
`uuid`, `now`) are allowed."""

_OPERATOR_WORDS = "! % & * + - / < << <= <=> = == > >= >> >>> ^ | ~"
OPERATORS = frozenset(_OPERATOR_WORDS.split())
"""The names of Spark's operators in its registry."""

_JAVA = "runs Java code"
_FILES = "can read files"
_ADDRESSES = "can load a document type from a file or an address"
_PATHS = "shows where files are"
_SESSION = "depends on the machine or the session, not on the inputs"

REFUSED_FUNCTIONS = {
    "java_method": _JAVA,
    "reflect": _JAVA,
    "try_reflect": _JAVA,
    "from_avro": _FILES,
    "from_protobuf": _FILES,
    "from_xml": _FILES,
    "schema_of_avro": _FILES,
    "schema_of_xml": _FILES,
    "to_avro": _FILES,
    "to_protobuf": _FILES,
    "xpath": _ADDRESSES,
    "xpath_boolean": _ADDRESSES,
    "xpath_double": _ADDRESSES,
    "xpath_float": _ADDRESSES,
    "xpath_int": _ADDRESSES,
    "xpath_long": _ADDRESSES,
    "xpath_number": _ADDRESSES,
    "xpath_short": _ADDRESSES,
    "xpath_string": _ADDRESSES,
    "input_file_block_length": _PATHS,
    "input_file_block_start": _PATHS,
    "input_file_name": _PATHS,
    "collations": _SESSION,
    "current_catalog": _SESSION,
    "current_database": _SESSION,
    "current_schema": _SESSION,
    "current_user": _SESSION,
    "python_worker_logs": _SESSION,
    "session_user": _SESSION,
    "sql_keywords": _SESSION,
    "user": _SESSION,
    "version": _SESSION,
}
"""Spark's other built-in functions, each with the reason why it is refused."""
