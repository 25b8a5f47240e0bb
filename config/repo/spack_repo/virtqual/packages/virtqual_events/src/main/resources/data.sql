-- 1,000 people, 2,000 events of 50 tags, 20 sign-ups and 10 remarks each: the client asks for these numbers,
-- and as many as a page shows, so that pages do not grow with the requests that were served.
insert into person (name, about)
    select 'Person ' || n, repeat('likes to meet people ', 1 + n % 8) from generate_series(1, 1000) n;
insert into event (title, tag, day, about)
    select 'Event ' || n, 'tag' || n % 50, date '2026-01-01' + n % 365, repeat('come and see it ', 1 + n % 8)
    from generate_series(1, 2000) n;
insert into signup (event, person)
    select 1 + n / 20, 1 + n * 389 % 1000 from generate_series(0, 39999) n;
insert into remark (event, person, text)
    select 1 + n / 10, 1 + n * 577 % 1000, 'remark ' || n from generate_series(0, 19999) n;
analyze;
