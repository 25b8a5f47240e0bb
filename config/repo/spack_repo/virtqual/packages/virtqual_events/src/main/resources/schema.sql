create table person (id bigint generated always as identity primary key, name text not null, about text not null);
create table event (
    id bigint generated always as identity primary key, title text not null, tag text not null, day date not null,
    about text not null
);
create table signup (
    id bigint generated always as identity primary key, event bigint not null references event,
    person bigint not null references person
);
create table remark (
    id bigint generated always as identity primary key, event bigint not null references event,
    person bigint not null references person, text text not null
);
create index on event (day desc, id desc);
create index on event (tag, day desc, id desc);
create index on signup (event, id desc);
create index on signup (person, id desc);
create index on remark (event, id desc);
