tags[1]
tags[-1]
tags[0]
tags[9]
ns[i]
named_struct('a', i, 'b', t)['b']
struct(i, t)
get_field(named_struct('a', i), 'a')
make_array(i, l)
[1, i]
array_length(tags)
cardinality(ns)
array_has(ns, 2)
array_has(tags, 'z')
array_contains(ns, i)
array_element(ns, -1)
array_to_string(tags, ',')
array_to_string(ns, '-', 'none')
tags[1:2]
tags[2:2]
tags[0:1]
tags[-1:-1]
tags[-2:-1]
tags[2:1]
ns[1:i]
ns[l:9]
array_slice(ns, 2, 3)
array_slice(ns, -2, -1)
nn[1]
nn[1][1]
m['a']
m['zz']
mi[1]
mi[99]
s['a']
s.b
get_field(s, 'b')
ss[1]['k']
map(['a', 'b'], [1, 2])
map(['a', 'b'], [1, 2])['b']
make_map('x', i)
map_keys(m)
map_values(m)
map_keys(mi)
map_entries(m)
map_extract(m, 'a')
cardinality(m)
array_append(ns, 9)
array_append(ns, i)
array_append(tags, 'z')
array_prepend(0, ns)
array_concat(ns, [7], ns)
array_cat(tags, ['q'])
array_position(ns, 2)
array_position(tags, 'b')
array_distinct([1, 2, 1])
array_distinct(tags)
array_reverse(ns)
array_remove_all(ns, 1)
array_has_all(ns, [1, 2])
array_has_any(ns, [5, 6])
array_max(ns)
array_min(ns)
array_union(ns, [1, 7])
array_intersect(ns, [2, 3])
array_except(ns, [1])
array_repeat('x', 2)
array_length(nn)
flatten(nn)
list_length(tags)
list_contains(tags, 'a')
list_append(ns, 1)
empty(tags)
generate_series(1, 5)
generate_series(5, 1, -2)
generate_series(1, i)
range(3)
range(1, 6, 2)
range(5, 1)
string_to_array(t, ' ')
string_to_array(t, 'l')
string_to_array('a,,b', ',')
string_to_array('a,b', ',', 'b')
string_to_array('abc', NULL)
string_to_array(t, '')
array_to_string(nn[1], '+')
list_to_string(tags, '|')
