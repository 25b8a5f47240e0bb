package virtqual;

import java.time.LocalDate;
import java.util.List;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.stereotype.Controller;
import org.springframework.ui.Model;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.ResponseBody;

/** A calendar of events: people, their sign-ups and their comments. Each answer is a page of the database's rows. */
@SpringBootApplication
@Controller
public class Events {
    public record Event(long id, String title, String tag, LocalDate day, String about) {}

    public record Person(long id, String name, String about) {}

    public record Remark(String author, String text) {}

    private static final String EVENTS = "select id, title, tag, day, about from event ";

    private final JdbcClient database;

    public Events(JdbcClient database) {
        this.database = database;
    }

    public static void main(String[] arguments) {
        SpringApplication.run(Events.class, arguments);
    }

    /** The Java that runs, and what it believes to have: it must be the same on both sides. */
    @GetMapping("/java")
    @ResponseBody
    public String describeJava() {
        Runtime runtime = Runtime.getRuntime();
        return Runtime.version() + " processors " + runtime.availableProcessors() + " heap " + runtime.maxMemory();
    }

    @GetMapping("/")
    public String showHome(Model page) {
        return showEvents(page, "Events", database.sql(EVENTS + "order by day desc, id desc limit 20"));
    }

    @GetMapping("/tags/{tag}")
    public String showTag(Model page, @PathVariable String tag) {
        String rows = EVENTS + "where tag = ? order by day desc, id desc limit 20";
        return showEvents(page, tag, database.sql(rows).param(tag));
    }

    private String showEvents(Model page, String heading, JdbcClient.StatementSpec rows) {
        page.addAttribute("heading", heading).addAttribute("events", rows.query(Event.class).list());
        return "events";
    }

    @GetMapping("/events/{id}")
    public String showEvent(Model page, @PathVariable long id) {
        String people = "select p.id, name, about from person p join signup s on p.id = person "
            + "where event = ? order by s.id desc limit 20";
        String remarks = "select name as author, text from remark r join person p on p.id = person "
            + "where event = ? order by r.id desc limit 10";
        page.addAttribute("event", database.sql(EVENTS + "where id = ?").param(id).query(Event.class).single());
        page.addAttribute("people", database.sql(people).param(id).query(Person.class).list());
        page.addAttribute("remarks", database.sql(remarks).param(id).query(Remark.class).list());
        return "event";
    }

    @GetMapping("/people/{id}")
    public String showPerson(Model page, @PathVariable long id) {
        String rows = "select e.id, title, tag, day, about from event e join signup s on e.id = event "
            + "where person = ? order by s.id desc limit 20";
        String person = "select id, name, about from person where id = ?";
        page.addAttribute("person", database.sql(person).param(id).query(Person.class).single());
        List<Event> events = database.sql(rows).param(id).query(Event.class).list();
        page.addAttribute("events", events);
        return "person";
    }

    @PostMapping("/events")
    public String addEvent(Model page, @RequestParam String title, @RequestParam String tag) {
        String row = "insert into event (title, tag, day, about) values (?, ?, date '2026-01-01', ?) returning id";
        return showEvent(page, database.sql(row).params(title, tag, title).query(Long.class).single());
    }

    @PostMapping("/people")
    public String addPerson(Model page, @RequestParam String name) {
        String row = "insert into person (name, about) values (?, ?) returning id";
        return showPerson(page, database.sql(row).params(name, name).query(Long.class).single());
    }

    @PostMapping("/events/{id}/people")
    public String signUp(Model page, @PathVariable long id, @RequestParam long person) {
        database.sql("insert into signup (event, person) values (?, ?)").params(id, person).update();
        return showEvent(page, id);
    }

    @PostMapping("/events/{id}/remarks")
    public String addRemark(
            Model page, @PathVariable long id, @RequestParam long person, @RequestParam String text) {
        String row = "insert into remark (event, person, text) values (?, ?, ?)";
        database.sql(row).params(id, person, text).update();
        return showEvent(page, id);
    }
}
